package install

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/test/install/render"
)

// TestPolicyParameter: the policies for pods and for drivers take the very configuration that
// the daemons have, also where an overlay replaces that of the base, as docs/install.md
// says. With another name the one would allow everything, and the other nothing.
func TestPolicyParameter(t *testing.T) {
	base, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	relative, err := filepath.Rel(own, base)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"config.yaml": "apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- {flexDriver: a/b, csiDriver: c}\n",
		"kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: storage\nresources: [" + relative + "/overlays/kubeadm]\n" +
			"configMapGenerator:\n- {name: flex2csi-config, behavior: replace, files: [config.yaml]}\n",
	} {
		if err := os.WriteFile(filepath.Join(own, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replaced, err := render.Kustomize(own)
	if err != nil {
		t.Fatal(err)
	}
	for name, objects := range map[string][]*unstructured.Unstructured{
		"an overlay": overlay(t, "kubeadm"), "an overlay with a configuration": replaced, "the chart": all(t),
	} {
		t.Run(name, func(t *testing.T) { wantParameter(t, objects) })
	}
}

func wantParameter(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	var config *unstructured.Unstructured
	for _, o := range objects {
		if o.GetKind() == "ConfigMap" && data(o)["config.yaml"] != "" {
			config = o
		}
	}
	for _, name := range []string{"flex2csi-pods", "flex2csi-attachment-drivers"} {
		binding := find(t, objects, "ValidatingAdmissionPolicyBinding", name)
		if name, namespace := get[string](t, binding, "spec.paramRef.name"), get[string](t, binding, "spec.paramRef.namespace"); name != config.GetName() || namespace != config.GetNamespace() {
			t.Errorf("the parameter of %s is %s/%s, and the configuration %s/%s", binding.GetName(), namespace, name, config.GetNamespace(), config.GetName())
		}
	}
}
