package install

import (
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/test/install/render"
)

// TestExamples: what Argo CD, Flux and the Helm controller of RKE2 get are values of this
// chart, for a namespace that allows the pods.
func TestExamples(t *testing.T) {
	for _, example := range []struct {
		file, kind    string
		values, chart []string // where they are
		label         []string // of the namespace, if the object makes it
	}{
		{
			"argocd-application.yaml", "Application",
			[]string{"spec", "source", "helm", "valuesObject"},
			[]string{"spec", "source", "path"},
			[]string{"spec", "syncPolicy", "managedNamespaceMetadata", "labels", podSecurity},
		},
		{"flux-helmrelease.yaml", "HelmRelease", []string{"spec", "values"}, []string{"spec", "chart", "spec", "chart"}, nil},
		{"rke2-helmchart.yaml", "HelmChart", []string{"spec", "valuesContent"}, []string{"spec", "chart"}, nil},
	} {
		t.Run(example.file, func(t *testing.T) {
			objects, err := render.File(manifests + "/examples/" + example.file)
			if err != nil {
				t.Fatal(err)
			}
			o := find(t, objects, example.kind, "flex2csi")
			labelled, at := o, example.label
			if at == nil {
				labelled, at = find(t, objects, "Namespace", "flex2csi"), []string{"metadata", "labels", podSecurity}
			}
			if level := field(t, labelled, at...); level != "privileged" {
				t.Errorf("the namespace has the label %v", level)
			}
			v, ok := field(t, o, example.values...).(values)
			if text, isText := field(t, o, example.values...).(string); isText {
				ok = yaml.UnmarshalStrict([]byte(text), &v) == nil
			}
			if !ok {
				t.Fatal("it has no values")
			}
			config := find(t, release(t, v), "ConfigMap", "flex2csi-config")
			if _, err := (bridgeconfig.Loader{}).Decode([]byte(data(config)["config.yaml"])); err != nil {
				t.Error(err)
			}
			from, _ := field(t, o, example.chart...).(string)
			// The chart's folder, or the name that a release gives to it (hack/release).
			if !regexp.MustCompile(`^(\./)?install/chart/flex2csi$|^https://.*/flex2csi-` + chartVersion(t) + `\.tgz$`).MatchString(from) {
				t.Errorf("the chart comes from %q", from)
			}
		})
	}
}

const podSecurity = "pod-security.kubernetes.io/enforce"

func field(t *testing.T, o *unstructured.Unstructured, path ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if !found {
		t.Errorf("%s has no %v: %v", o.GetKind(), path, err)
	}
	return value
}

func chartVersion(t *testing.T) string {
	t.Helper()
	var about struct{ Version string }
	if err := yaml.Unmarshal([]byte(readFile(t, chart+"/Chart.yaml")), &about); err != nil {
		t.Fatal(err)
	}
	return regexp.QuoteMeta(about.Version)
}
