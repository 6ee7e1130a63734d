package rbac_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// podsPolicy says for which drivers pods may have inline volumes.
const podsPolicy = "flex2csi-pods"

// inlinePod is a pod with an inline FlexVolume.
func inlinePod(flexDriver string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "inline-"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
			Volumes: []corev1.Volume{
				{Name: "other", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "data", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{
					Driver: flexDriver, Options: map[string]string{"volumeHandle": "another-tenants"},
				}}},
			},
		},
	}
}

// A podMaker tries to create pods.
type podMaker struct {
	t *testing.T
	*controlplane.Plane
}

func (m podMaker) create(namespace string, pod *corev1.Pod) error {
	_, err := m.Admin().CoreV1().Pods(namespace).Create(m.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// configure replaces the configuration, and waits until the policy knows it: a driver
// that is new in it is denied.
func (m podMaker) configure(config string) {
	m.t.Helper()
	mark := fmt.Sprintf("example.com/mark-%x", sha256.Sum256([]byte(config)))
	configure(m.Plane, config+"\n# "+mark+"\n")
	eventually(m.t, "the configuration", func(context.Context) error {
		if err := m.create("default", inlinePod(mark)); err == nil || !strings.Contains(err.Error(), "may use only through") {
			return fmt.Errorf("not in force yet: %w", err)
		}
		return nil
	})
}

// A podCase is a configuration, and what pods may have inline with it.
type podCase struct {
	config          string
	allowed, denied []string
}

// podCases are ways to write the same, and ways to write it that look like it.
func podCases() map[string]podCase {
	return map[string]podCase{
		"as the documents have it": {
			header + "drivers:\n- flexDriver: example.com/disk\n  csiDriver: disk.csi.example.com\n- flexDriver: example.com/open\n  csiDriver: disk.csi.example.com\n  inline: true\n",
			[]string{"example.com/open", "other.example/x", "example.com/dis", "example.com/disk2", "examplescom/disk"},
			[]string{"example.com/disk"},
		},
		"indented, with comments": {
			header + "# all drivers\ndrivers: # of ours\n\n  # one\n  - flexDriver: 'example.com/open' # open\n    csiDriver: a\n\n    # why\n    secrets: {nodeStage: {file: /x}}\n    inline: true   # since 2019\n  - flexDriver: \"example.com/disk\"\n    csiDriver: a\n",
			[]string{"example.com/open"},
			[]string{"example.com/disk"},
		},
		"sorted, as Helm writes it": {
			header + "drivers:\n- csiDriver: a\n  flexDriver: example.com/disk\n  inline: false\n- csiDriver: a\n  flexDriver: example.com/open\n  inline: true\n- csiDriver: a\n  flexDriver: example.com/third\n",
			[]string{"example.com/open"},
			[]string{"example.com/disk", "example.com/third"},
		},
		"inline first": {
			header + "drivers:\n- inline: true\n  csiDriver: a\n  flexDriver: example.com/open\n- flexDriver: example.com/disk\n  csiDriver: a\n- inline: true\n  flexDriver: example.com/open2\n",
			[]string{"example.com/open", "example.com/open2"},
			[]string{"example.com/disk"},
		},
		"in JSON": {
			`{"apiVersion": "flex2csi.io/v1alpha1", "kind": "BridgeConfiguration", "drivers": [{"flexDriver": "example.com/disk", "csiDriver": "a", "inline": true}]}`,
			nil,
			[]string{"example.com/disk"},
		},
		"in braces": {
			header + "drivers:\n- {flexDriver: example.com/disk, csiDriver: a, inline: true}\n",
			nil,
			[]string{"example.com/disk"},
		},
		"deeper": {
			header + "drivers:\n- flexDriver: example.com/disk\n  csiDriver: a\n  volume:\n    inline: true\n",
			nil,
			[]string{"example.com/disk"},
		},
		"in a text": {
			header + "drivers:\n- flexDriver: example.com/disk\n  csiDriver: a\n  volume:\n    context: |\n      inline: true\n- flexDriver: example.com/disk3\n  csiDriver: a\n",
			nil,
			[]string{"example.com/disk", "example.com/disk3"},
		},
		"in a comment": {
			header + "drivers:\n- flexDriver: example.com/disk\n  csiDriver: a\n  # inline: true\n",
			nil,
			[]string{"example.com/disk"},
		},
		"of another entry, more indented": {
			header + "drivers:\n    - flexDriver: example.com/disk\n      csiDriver: a\n    - flexDriver: example.com/open\n      inline: true\n",
			nil,
			[]string{"example.com/disk", "example.com/open"},
		},
		"not true": {
			header + "drivers:\n- flexDriver: example.com/disk\n  csiDriver: a\n  inline: truthy\n",
			nil,
			[]string{"example.com/disk"},
		},
	}
}

// TestDeniesInline: flex2csi assess says the same as the policy in TestPods.
func TestDeniesInline(t *testing.T) {
	for name, test := range podCases() {
		for denied, drivers := range map[bool][]string{false: test.allowed, true: test.denied} {
			for _, driver := range drivers {
				if got := bridgeconfig.DeniesInline(test.config, driver); got != denied {
					t.Errorf("%s: %s is denied: %v, want %v", name, driver, got, denied)
				}
			}
		}
	}
}

// TestPods: pods could have any driver that is served inline, and so name the volume of
// another tenant.
func TestPods(t *testing.T) {
	p := installed(t)
	p.Apply(install + "policy/pods.yaml")
	m := podMaker{t, p}
	for name, test := range podCases() {
		t.Run(name, func(t *testing.T) {
			m := podMaker{t, p.With(t)}
			m.configure(test.config)
			for _, driver := range test.allowed {
				wantDone(t, "a pod with "+driver, m.create("default", inlinePod(driver)))
			}
			for _, driver := range test.denied {
				for _, namespace := range []string{"default", "kube-system", namespace} {
					wantRefused(t, m.create(namespace, inlinePod(driver)), "inline volume (flexVolume) of driver "+driver)
				}
			}
			plain := inlinePod("")
			plain.Spec.Volumes = plain.Spec.Volumes[:1]
			wantDone(t, "a pod without a FlexVolume", m.create("default", plain))
		})
	}
	t.Run("what a driver's name cannot be", func(t *testing.T) {
		m := podMaker{t, p.With(t)}
		for _, driver := range []string{`x\E|.*\Q`, "(", ".*", `\Qx`} {
			if err := m.create("default", inlinePod(driver)); err != nil && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				t.Errorf("%s: %v", driver, err)
			}
		}
	})
	t.Run("drivers of flexdriver install", func(t *testing.T) { testOtherDrivers(t, podMaker{t, p.With(t)}) })
	t.Run("from a Deployment", func(t *testing.T) { testDeployment(t, podMaker{t, p.With(t)}) })
	m.t = t
	testNoConfiguration(t, m)
}

// testOtherDrivers: an administrator names those that are not in the configuration.
func testOtherDrivers(t *testing.T, m podMaker) {
	const local = "example.com/local"
	wantDone(t, "a pod with a driver of another project", m.create("default", inlinePod(local)))
	setVariables(t, m.Plane, podsPolicy, map[string]string{"others": "['x.example/y', '" + local + "']"})
	eventually(t, "the variable", func(context.Context) error {
		if err := m.create("default", inlinePod(local)); err == nil {
			return errors.New("not in force yet")
		}
		return nil
	})
	wantRefused(t, m.create("default", inlinePod(local)), "of driver "+local)
}

// testDeployment: the controllers of kube-controller-manager, with rights of their own,
// make no such pod either, and say why.
func testDeployment(t *testing.T, m podMaker) {
	m.configure(header + "drivers:\n- flexDriver: example.com/disk\n  csiDriver: a\n")
	pod := inlinePod("example.com/disk")
	pod.Labels = map[string]string{"app": "inline"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "inline"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
	}}
	if _, err := m.Admin().AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Run(m.Program("kube-controller-manager", "--kubeconfig", m.Kubeconfig(controlplane.Admin), "--leader-elect=false",
		"--secure-port=0", "--controllers=deployment-controller,replicaset-controller"))
	eventually(t, "an Event of the ReplicaSet", func(ctx context.Context) error {
		events, err := m.Admin().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
		if err != nil {
			return err
		}
		if len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "inline volume (flexVolume) of driver example.com/disk") {
			return fmt.Errorf("%d events", len(events.Items))
		}
		return nil
	})
}

// testNoConfiguration: pods go on to be created in a cluster where the namespace of
// flex2csi is deleted. flex2csi doctor reports what is open.
func testNoConfiguration(t *testing.T, m podMaker) {
	m.NoConfigMap(namespace, configName)
	eventually(t, "pods of all kinds", func(context.Context) error { return m.create("default", inlinePod("example.com/disk")) })
}
