// Package server_test shows the manifests in install/ to a real API server.
package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/install/render"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const install = "../../../install"

// TestValid: the API server takes all that kustomize and Helm make for its release, for
// each distribution and with each component, without a warning.
func TestValid(t *testing.T) {
	p := controlplane.Start(t)
	p.Namespace("flex2csi")
	p.Namespace("flex2csi-nodes") // dry runs make none
	p.Namespace("mydriver")
	seen := map[string]bool{}
	for name, objects := range everything(t) {
		t.Run(name, func(t *testing.T) {
			p := p.With(t)
			for _, o := range objects {
				// What the Prometheus Operator brings along is not there; the module's
				// other tests look at those.
				text, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if seen[string(text)] || strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/") {
					continue
				}
				seen[string(text)] = true
				if o.GetKind() == "Namespace" {
					o.SetName("another")
				}
				if err := p.DryRun(o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
	t.Run("a mistake", func(t *testing.T) { testMistake(t, p.With(t)) })
	t.Run("pods", func(t *testing.T) { testPods(t, p.With(t)) })
	if policies() {
		t.Run("inline volumes", func(t *testing.T) { testInline(t, p.With(t)) })
		t.Run("drivers", func(t *testing.T) { testDrivers(t, p.With(t)) })
	}
}

// policies: the API server has ValidatingAdmissionPolicies.
func policies() bool {
	m := controlplane.Release()
	return m == 0 || m.Has(distribution.AdmissionPolicies())
}

// testInline: what Helm and kustomize make keeps pods from inline volumes, by the
// configuration that each of them writes.
func testInline(t *testing.T, p *controlplane.Plane) {
	for name, objects := range map[string][]*unstructured.Unstructured{
		"kustomize": overlay(t, "kubeadm"),
		"helm": chart(t, map[string]any{"drivers": []any{
			map[string]any{"flexDriver": "example.com/disk", "csiDriver": "disk.csi.example.com", "inline": false},
			map[string]any{"flexDriver": "example.com/open", "csiDriver": "disk.csi.example.com", "inline": true, "podInfo": true},
			map[string]any{"flexDriver": "example.com/last", "csiDriver": "disk.csi.example.com"},
		}}),
	} {
		for _, o := range objects {
			if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetName() == "flex2csi-pods" || o.GetKind() == "ConfigMap" && o.GetNamespace() == "flex2csi" {
				if err := p.Replace(o); err != nil {
					t.Fatal(err)
				}
			}
		}
		wantInline(t, p, name, "example.com/disk", false)
		if name == "helm" {
			wantInline(t, p, name, "example.com/open", true)
			wantInline(t, p, name, "example.com/last", false)
		}
		wantInline(t, p, name, "other.example/x", true)
	}
	testWarning(t, p)
}

// testWarning: with the component pods-warn such a pod is created, and the client is told.
func testWarning(t *testing.T, p *controlplane.Plane) {
	for _, o := range overlay(t, "kubeadm", "pods-warn") {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetName() == "flex2csi-pods" || o.GetKind() == "ConfigMap" && o.GetNamespace() == "flex2csi" {
			if err := p.Replace(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "warned-"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "none"}},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/disk"}}}},
	}}
	wantSoon(t, "a pod with a warning", func(ctx context.Context) error {
		_, err := p.Admin().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		return p.DryRun(inlinePod("example.com/disk"))
	}, func(err error) bool {
		return err != nil && strings.HasPrefix(err.Error(), "Validation failed for ValidatingAdmissionPolicy 'flex2csi-pods'") && strings.Contains(err.Error(), "inline volume (flexVolume) of driver example.com/disk")
	})
}

// wantInline tries until it is as wanted: the API server watches policies.
func wantInline(t *testing.T, p *controlplane.Plane, name, driver string, allowed bool) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err = p.DryRun(inlinePod(driver))
		if allowed == (err == nil) && (allowed || strings.Contains(err.Error(), "inline volume (flexVolume) of driver "+driver)) {
			return
		}
	}
	t.Errorf("%s: a pod with %s inline: %v, and allowed is %v", name, driver, err, allowed)
}

func inlinePod(driver string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "inline", "namespace": "default"}, "spec": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": "none"}},
		"volumes":    []any{map[string]any{"name": "data", "flexVolume": map[string]any{"driver": driver}}},
	}}}
}

func everything(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	all := map[string][]*unstructured.Unstructured{}
	for _, d := range distribution.All() {
		all["kustomize "+d.Name] = overlay(t, d.Name)
		all["helm "+d.Name] = chart(t, map[string]any{"distribution": d.Name})
	}
	all["a migration as a Job"] = migrateJob(t)
	vendor, err := render.File(install + "/examples/vendor-driver.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all["a vendor's driver"] = vendor
	all["kustomize with everything"] = overlay(t, "kubeadm", "attach", "plugin-dir", "monitoring", "migrate")
	rbac := map[string]any{
		"nodesAttach": false,
		"secrets":     []any{map[string]any{"namespace": "flex2csi", "names": []any{"array"}}},
	}
	if policies() { // else the chart refuses it: nothing bounds it
		rbac["serviceAccountTokens"] = map[string]any{"enabled": true, "audiences": []any{"vault"}}
	}
	all["helm with everything"] = chart(t, map[string]any{
		"volumePluginDir": "/var/lib/kubelet/plugins/volume/exec",
		"attach":          map[string]any{"enabled": true},
		"metrics":         map[string]any{"enabled": true},
		"migrate":         map[string]any{"enabled": true},
		"rbac":            rbac,
		"policy":          map[string]any{"drivers": []any{"a.b", "c.d"}, "secrets": []any{"kube-system/array"}, "pods": map[string]any{"others": []any{"a/b"}}},
	})
	if policies() { // a base of all variants is a right that only a policy bounds
		variants, err := render.Variants(install+"/chart/flex2csi", "../testdata/base.yaml", "../testdata/values.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range variants {
			all["helm with "+name] = chart(t, values)
		}
	}
	return all
}

func migrateJob(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	for _, file := range []string{"migrate-role.yaml", "job.yaml"} {
		objects, err := render.File(install + "/migrate/" + file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects...)
	}
	return all
}

func overlay(t *testing.T, name string, components ...string) []*unstructured.Unstructured {
	t.Helper()
	if !policies() {
		components = append(components, "kubernetes-before-1.30")
	}
	objects, err := render.Overlay(install, name, components...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func chart(t *testing.T, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	r := render.Release{Namespace: "flex2csi", Values: render.Example(values)}
	if m := controlplane.Release(); m != 0 {
		r.Kubernetes = "v" + m.String() + ".0"
	}
	objects, err := r.Objects(install + "/chart/flex2csi")
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// testMistake: what is misspelt is seen.
func testMistake(t *testing.T, p *controlplane.Plane) {
	for _, o := range overlay(t, "kubeadm") {
		if o.GetKind() != "DaemonSet" {
			continue
		}
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		spec["updatestrategy"] = map[string]any{}
		_ = unstructured.SetNestedMap(o.Object, spec, "spec")
		if err := p.DryRun(o); err == nil || !strings.Contains(err.Error(), "updatestrategy") {
			t.Errorf("a field that there is not: %v", err)
		}
	}
}

// testPods: the levels of Pod Security that the pods keep to, by the API server's
// own judgement: all of them privileged, as the namespace says, and the sweeper and
// migrations restricted, so that they can run anywhere.
func testPods(t *testing.T, p *controlplane.Plane) {
	for _, level := range []string{"privileged", "restricted"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: level, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level}}}
		if _, err := p.Admin().CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	restricted := []string{"flex2csi-controller", "flex2csi-migrate"}
	looked := 0
	for _, o := range append(overlay(t, "kubeadm", "attach", "monitoring"), migrateJob(t)...) {
		pod := podOf(o)
		if pod == nil {
			continue
		}
		looked++
		pod.SetNamespace("privileged")
		if err := p.DryRun(pod); err != nil {
			t.Errorf("a pod of %s: %v", o.GetName(), err)
		}
		pod.SetNamespace("restricted")
		err := p.DryRun(pod)
		if slices.Contains(restricted, o.GetName()) != (err == nil) {
			t.Errorf("a pod of %s where pods are restricted: %v", o.GetName(), err)
		}
	}
	want := 4
	if !policies() { // nodes do not attach there, and nothing has to detach for them
		want = 3
	}
	if looked != want {
		t.Errorf("%d kinds of pods were looked at, want %d", looked, want)
	}
}

// podOf is a pod as the object's controller would make it, or nil.
func podOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	spec, found, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	if !found {
		return nil
	}
	delete(spec, "priorityClassName") // of which the class is made by a controller
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
	pod.SetName(o.GetName())
	return pod
}
