package install

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/test/install/render"
)

// texts are the templates of a release, one after the other.
func texts(t *testing.T, v values) string {
	t.Helper()
	files, err := render.Release{Namespace: "flex2csi", Values: v}.Texts(chart)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(name, "NOTES.txt") {
			all.WriteString(files[name])
		}
	}
	return all.String()
}

// TestChartValues: each value that the schema has is in values.yaml, and is used.
func TestChartValues(t *testing.T) {
	variants, err := render.Variants(chart, "testdata/base.yaml", "testdata/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(variants) < 70 {
		t.Errorf("there are only %d values", len(variants))
	}
	defaults, err := render.Values(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	base, err := render.Values("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	without := texts(t, base)
	for name, variant := range variants {
		if _, ok, _ := unstructured.NestedFieldNoCopy(defaults, strings.Split(name, ".")...); !ok {
			t.Errorf("values.yaml has no %s", name)
		}
		if texts(t, variant) == without {
			t.Errorf("%s changes nothing", name)
		}
	}
}

// TestChartNoDrivers: an installation without drivers would do nothing, and one with those
// of an example something else than is wanted.
func TestChartNoDrivers(t *testing.T) {
	for name, v := range map[string]values{"default": {}, "empty": {"drivers": []any{}}} {
		t.Run(name, func(t *testing.T) {
			_, err := render.Release{Namespace: "flex2csi", Values: v}.Objects(chart)
			if err == nil || !strings.Contains(err.Error(), "drivers: missing; name your FlexVolume drivers") || !strings.Contains(err.Error(), "flex2csi preset show NAME") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestChartPresets: what preset show prints is a file of values, and the daemons get it as
// it is. With places to be filled in it is refused.
func TestChartPresets(t *testing.T) {
	presets, err := bridgeconfig.Presets()
	if err != nil {
		t.Fatal(err)
	}
	open := 0
	for _, p := range presets {
		t.Run(p.Name, func(t *testing.T) {
			if len(p.Open) > 0 {
				open++
				_, err := render.Release{Namespace: "flex2csi", Values: asValues(t, p)}.Objects(chart)
				if err == nil || !strings.Contains(err.Error(), bridgeconfig.OpenMark+p.Open[0].Name) || !strings.Contains(err.Error(), "is to be filled in") {
					t.Errorf("with places to be filled in the error is %v", err)
				}
			}
			for _, place := range p.Open {
				if p, err = p.Fill(place.Name, "filled-in"); err != nil {
					t.Fatal(err)
				}
			}
			want, err := bridgeconfig.Loader{}.Decode([]byte(p.Text))
			if err != nil {
				t.Fatal(err)
			}
			config := find(t, release(t, asValues(t, p)), "ConfigMap", "flex2csi-config")
			got, err := bridgeconfig.Loader{}.Decode([]byte(get[map[string]string](t, config, "data")["config.yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("preset (-), configuration of the daemons (+):\n%s", diff)
			}
		})
	}
	if open < 3 {
		t.Errorf("only %d presets have places to be filled in", open)
	}
}

func asValues(t *testing.T, p bridgeconfig.Preset) (v values) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(p.Text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestChartLabels: every object has the labels that Kubernetes recommends, and those and the
// annotations that all are to have. https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
func TestChartLabels(t *testing.T) {
	r := render.Release{Namespace: "elsewhere", Values: changed(t, values{
		"nameOverride": "storage", "distribution": "openshift",
		"commonLabels":      values{"team": "storage", "app.kubernetes.io/part-of": "another"},
		"commonAnnotations": values{"example.com/contact": "storage"},
	})}
	objects, err := r.Objects(chart)
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := r.Hooks(chart)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(objects, hooks...) {
		labels := o.GetLabels()
		for key, want := range map[string]string{
			"app.kubernetes.io/name": "storage", "app.kubernetes.io/instance": "flex2csi", "app.kubernetes.io/part-of": "flex2csi",
			"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "v0.1.0", "helm.sh/chart": "flex2csi-0.1.0", "team": "storage",
		} {
			if labels[key] != want {
				t.Errorf("%s %s has the label %s=%s, want %s", o.GetKind(), o.GetName(), key, labels[key], want)
			}
		}
		if labels["app.kubernetes.io/component"] == "" || o.GetAnnotations()["example.com/contact"] != "storage" {
			t.Errorf("%s %s has the labels %v and the annotations %v", o.GetKind(), o.GetName(), labels, o.GetAnnotations())
		}
	}
	for _, set := range []string{"DaemonSet storage-node", "DaemonSet storage-attach", "Deployment storage-controller"} {
		kind, name, _ := strings.Cut(set, " ")
		o := find(t, objects, kind, name)
		labels := get[map[string]string](t, o, "spec.template.metadata.labels")
		for key, value := range get[map[string]string](t, o, "spec.selector.matchLabels") {
			if labels[key] != value {
				t.Errorf("the pods of %s have %s=%s, and it selects %s", set, key, labels[key], value)
			}
		}
		if labels["team"] != "storage" || labels["app.kubernetes.io/part-of"] != "flex2csi" {
			t.Errorf("the pods of %s have the labels %v", set, labels)
		}
	}
}

// changed are the values with which all objects are made, and some more.
func changed(t *testing.T, more values) values {
	t.Helper()
	v, err := render.Values("testdata/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v["rbac"].(values)["secrets"] = []any{values{"namespace": "kube-system", "names": []any{"array"}}}
	maps.Copy(v, more)
	return v
}

// TestChartNames: with another name for everything, all that refers to something finds it.
func TestChartNames(t *testing.T) {
	objects := release(t, changed(t, values{
		"fullnameOverride": "bridge",
		"node":             values{"serviceAccount": values{"create": false, "name": "node-account"}},
		"controller":       values{"podDisruptionBudget": values{"enabled": true}, "serviceAccount": values{"name": "controller-account", "annotations": values{"example.com/role": "storage"}}},
		"metrics":          values{"enabled": true},
	}))
	for _, o := range objects {
		keeps := strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") || o.GetNamespace() == "flex2csi-nodes" || o.GetKind() == "Namespace"
		if strings.HasPrefix(o.GetName(), "flex2csi") != keeps {
			t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
		}
		if o.GetKind() == "ServiceAccount" && o.GetName() == "node-account" {
			t.Error("the ServiceAccount of the nodes is made")
		}
	}
	if a := find(t, objects, "ServiceAccount", "controller-account").GetAnnotations(); a["example.com/role"] != "storage" {
		t.Errorf("the ServiceAccount has the annotations %v", a)
	}
	accounts := map[string]string{"bridge-node": "node-account", "bridge-attach": "controller-account", "bridge-controller": "controller-account"}
	for _, o := range objects {
		want, ok := accounts[o.GetName()]
		if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" || !ok {
			continue
		}
		spec := get[corev1.PodSpec](t, o, "spec.template.spec")
		if spec.ServiceAccountName != want {
			t.Errorf("the pods of %s run as %s, want %s", o.GetName(), spec.ServiceAccountName, want)
		}
		for _, volume := range spec.Volumes {
			if volume.ConfigMap != nil {
				find(t, objects, "ConfigMap", volume.ConfigMap.Name)
			}
		}
	}
	// Who has rights has the same as with other names, and no one else has any.
	want := given(t, release(t, changed(t, values{"metrics": values{"enabled": true}})))
	if diff := cmp.Diff(map[string][]string{"node-account": want["node-account"], "controller-account": want["controller-account"], "bridge-metrics": want["flex2csi-metrics"]}, given(t, objects)); diff != "" {
		t.Errorf("rights with the default names (-), with others (+):\n%s", diff)
	}
	wantParameter(t, objects)
	wantAccounts(t, objects)
}

// wantAccounts: policies are about the ServiceAccounts that the pods have.
func wantAccounts(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, policy := range []struct{ name, node, controller string }{
		{"flex2csi-attachments", "node-account", "controller-account"},
		{"flex2csi-attachment-drivers", "node-account", "controller-account"},
		{"flex2csi-node-tokens", "node-account", ""},
		{"flex2csi-node-volumes", "node-account", ""},
	} {
		text, err := yaml.Marshal(find(t, objects, "ValidatingAdmissionPolicy", policy.name).Object)
		if err != nil {
			t.Fatal(err)
		}
		about := func(account string) bool {
			return slices.ContainsFunc(userPattern.FindAllStringSubmatch(string(text), -1), func(m []string) bool {
				return regexp.MustCompile(m[1]).MatchString("system:serviceaccount:flex2csi:" + account)
			})
		}
		for account, want := range map[string]bool{
			policy.node: true, policy.controller: policy.controller != "", "flex2csi-node": false, "flex2csi-controller": false,
		} {
			if about(account) != want {
				t.Errorf("%s is about %q: %t", policy.name, account, !want)
			}
		}
	}
}

// userPattern finds the patterns of user names in a policy.
var userPattern = regexp.MustCompile(`username\.matches\('+([^']+)'+\)`)

// TestChartAccounts: no name is taken for granted, and nodes and controller are told apart.
func TestChartAccounts(t *testing.T) {
	for want, v := range map[string]values{
		"node.serviceAccount.name: missing with create: false": {"node": values{"serviceAccount": values{"create": false}}},
		"controller.serviceAccount.name: it is that of the nodes": {
			"node": values{"serviceAccount": values{"name": "one"}}, "controller": values{"serviceAccount": values{"name": "one"}},
		},
	} {
		if _, err := (render.Release{Namespace: "flex2csi", Values: render.Example(v)}).Objects(chart); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// TestServiceMonitor: it selects the Service, which selects the pods. Once it found none: the
// Service lacked the label.
func TestServiceMonitor(t *testing.T) {
	objects := release(t, values{"attach": values{"enabled": true}, "metrics": values{"enabled": true, "serviceAccount": values{"name": "prometheus-k8s"}}})
	service := find(t, objects, "Service", "flex2csi-metrics")
	monitor := find(t, objects, "ServiceMonitor", "flex2csi")
	wantLabels(t, "the Service", service.GetLabels(), get[map[string]string](t, monitor, "spec.selector.matchLabels"))
	if job := service.GetLabels()[get[string](t, monitor, "spec.jobLabel")]; job != "flex2csi" {
		t.Errorf("the job is %q, in the alerts it is flex2csi", job)
	}
	for _, o := range objects {
		if o.GetKind() == "DaemonSet" || o.GetKind() == "Deployment" {
			wantLabels(t, o.GetName(), get[map[string]string](t, o, "spec.template.metadata.labels"), get[map[string]string](t, service, "spec.selector"))
		}
	}
}

func wantLabels(t *testing.T, of string, labels, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if labels[key] != value {
			t.Errorf("%s has %s=%q, want %q", of, key, labels[key], value)
		}
	}
}

// TestChartScheduling: what is said about pods is what they get.
func TestChartScheduling(t *testing.T) {
	v, err := render.Values("testdata/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v["controller"].(values)["enabled"], v["attach"].(values)["enabled"] = true, true
	delete(v["controller"].(values), "serviceAccount") // which is that of the nodes
	objects := release(t, v)
	for part, o := range map[string]*unstructured.Unstructured{
		"node": find(t, objects, "DaemonSet", "bridge-node"), "controller": find(t, objects, "Deployment", "bridge-controller"), "attach": find(t, objects, "DaemonSet", "bridge-attach"),
	} {
		spec := get[values](t, o, "spec.template.spec")
		said := v[part].(values)
		for _, field := range []string{"affinity", "tolerations"} {
			if diff := cmp.Diff(said[field], spec[field]); diff != "" {
				t.Errorf("%s of %s in the values (-), in the pods (+):\n%s", field, part, diff)
			}
		}
		if spec["priorityClassName"] != "another" {
			t.Errorf("%s has the priority %v", part, spec["priorityClassName"])
		}
		main := get[corev1.PodSpec](t, o, "spec.template.spec").Containers[0]
		if !slices.Contains(main.Args, "--v=1") || main.Env[len(main.Env)-1].Name == "NODE_NAME" {
			t.Errorf("%s has the arguments %q and the environment %v", part, main.Args, main.Env)
		}
	}
	binding := find(t, release(t, changed(t, nil)), "ClusterRoleBinding", "flex2csi-node")
	if s := get[[]rbacv1.Subject](t, binding, "subjects"); s[0].Name != "node-account" {
		t.Errorf("the rights of nodes are for %v", s)
	}
}
