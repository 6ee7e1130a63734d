package install

import (
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/install/render"
)

// components are those that a kustomization with "namespace:" may have.
const components = "components: [PATH/components/attach, PATH/components/plugin-dir, PATH/components/monitoring]\n"

// TestKustomizeNamespace: under "namespace: storage" policies and their parameters stayed in
// flex2csi, so that they had no effect, and kubectl delete -k deleted namespace storage.
func TestKustomizeNamespace(t *testing.T) {
	for _, d := range distribution.All() {
		objects, err := render.Own(manifests, "namespace: storage\nresources: [PATH/overlays/"+d.Name+"]\n"+components)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			text, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			if found := regexp.MustCompile(`(?m)namespace: flex2csi$|serviceaccounts?:flex2csi`).Find(text); found != nil || o.GetKind() == "Namespace" {
				t.Errorf("%s: %s %s has %q", d.Name, o.GetKind(), o.GetName(), found)
			}
		}
		wantParameter(t, objects)
	}
}

// TestMigrateNamespace: the right to write ConfigMaps of install/migrate moved into the
// namespace of the configuration.
func TestMigrateNamespace(t *testing.T) {
	for _, kustomization := range []string{
		"namespace: storage\nresources: [PATH/migrate]\n",
		"namespace: flex2csi\nresources: [PATH/overlays/kubeadm]\ncomponents: [PATH/components/migrate]\n",
	} {
		_, err := render.Own(manifests, kustomization)
		if err == nil || !strings.Contains(err.Error(), `install/migrate cannot be under "namespace:" of kustomize`) {
			t.Errorf("%s: %v", kustomization, err)
		}
	}
}
