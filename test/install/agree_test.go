package install

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/install/render"
)

const (
	manifests = "../../install"
	chart     = manifests + "/chart/flex2csi"
)

type values = map[string]any

// release renders the chart as the documents have people install it.
func release(t *testing.T, v values) []*unstructured.Unstructured {
	t.Helper()
	return releaseOn(t, "", v)
}

// releaseOn is the same for an API server of a version.
func releaseOn(t *testing.T, kubernetes string, v values) []*unstructured.Unstructured {
	t.Helper()
	objects, err := render.Release{Namespace: "flex2csi", Values: render.Example(v), Kubernetes: kubernetes}.Objects(chart)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func overlay(t *testing.T, name string, components ...string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := render.Overlay(manifests, name, components...)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestChartIsOverlay: kubectl apply -k and helm install make the same objects, for
// every distribution and every component.
func TestChartIsOverlay(t *testing.T) {
	for _, d := range distribution.All() {
		t.Run(d.Name, func(t *testing.T) {
			compare(t, overlay(t, d.Name), release(t, values{"distribution": d.Name}))
		})
	}
	metrics := values{"enabled": true}
	for _, test := range []struct {
		component string
		values    values
	}{
		{"plugin-dir", values{"volumePluginDir": distribution.DefaultPluginDir}},
		{"attach", values{"attach": values{"enabled": true}}},
		{"monitoring", values{"metrics": metrics}},
		{"pods-warn", values{"policy": values{"pods": values{"validationActions": []any{"Warn", "Audit"}}}}},
		{"migrate", values{"migrate": values{"enabled": true}}},
	} {
		t.Run(test.component, func(t *testing.T) {
			compare(t, overlay(t, "kubeadm", test.component), release(t, test.values))
		})
	}
	t.Run("all", func(t *testing.T) {
		compare(t, overlay(t, "kubeadm", "plugin-dir", "attach", "monitoring", "migrate"), release(t, values{
			"volumePluginDir": distribution.DefaultPluginDir, "attach": values{"enabled": true}, "metrics": metrics, "migrate": values{"enabled": true},
		}))
	})
}

func compare(t *testing.T, kustomize, helm []*unstructured.Unstructured) {
	t.Helper()
	want, got := byName(t, kustomize), byName(t, helm)
	if len(want) < 10 {
		t.Fatalf("kustomize makes only %s", slices.Sorted(maps.Keys(want)))
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Fatalf("objects of kustomize (-), of Helm (+):\n%s", diff)
	}
	for name := range want {
		if diff := cmp.Diff(want[name], got[name]); diff != "" {
			t.Errorf("%s of kustomize (-), of Helm (+):\n%s", name, diff)
		}
	}
}

// byName are the objects, without what has to differ: the labels of Helm, and how
// either rolls the pods when the configuration changes.
func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]values {
	t.Helper()
	all := map[string]values{}
	for _, o := range objects {
		o = plain(t, o)
		name := o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/", "/") + o.GetName()
		name = strings.Replace(name, "flex2csi/", "", 1)
		if _, twice := all[name]; twice {
			t.Fatalf("%s is there twice", name)
		}
		all[name] = o.Object
	}
	return all
}

func plain(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`flex2csi-config-[a-z0-9]{10}"`).ReplaceAll(text, []byte(`flex2csi-config"`))
	var plain unstructured.Unstructured
	if err := plain.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	// Helm has these on every object, kustomize where something goes by them: on pods.
	forget(plain.Object, []string{"app.kubernetes.io/name", "app.kubernetes.io/component"}, "metadata")
	forget(plain.Object, nil, "spec", "template", "metadata")
	for name, content := range data(&plain) {
		var document any
		if err := yaml.Unmarshal([]byte(content), &document); err != nil {
			t.Fatalf("%s in %s: %v", name, plain.GetName(), err)
		}
		plain.Object["data"].(values)[name] = document
	}
	return &plain
}

func data(o *unstructured.Unstructured) map[string]string {
	if o.GetKind() != "ConfigMap" {
		return nil
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	return data
}

// forget removes what Helm alone writes, and more labels.
func forget(o values, more []string, path ...string) {
	for key, names := range map[string][]string{
		"labels":      append(more, "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"),
		"annotations": {"flex2csi.io/config"},
	} {
		at := append(slices.Clone(path), key)
		entries, found, _ := unstructured.NestedMap(o, at...)
		for _, name := range names {
			delete(entries, name)
		}
		if found && len(entries) == 0 {
			unstructured.RemoveNestedField(o, at...)
		} else if found {
			_ = unstructured.SetNestedMap(o, entries, at...)
		}
	}
}

// get reads a field, as in "spec.template.spec".
func get[T any](t *testing.T, o *unstructured.Unstructured, path string) T {
	t.Helper()
	var current any = o.Object
	for name := range strings.SplitSeq(path, ".") {
		current = current.(values)[name]
	}
	text, err := json.Marshal(current)
	if err != nil {
		t.Fatal(err)
	}
	var value T
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s of %s: %v", path, o.GetName(), err)
	}
	return value
}

// find returns an object by kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}
