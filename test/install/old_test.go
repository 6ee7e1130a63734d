package install

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/test/install/render"
)

// The components for releases before 1.30, and releases that want them.
const (
	before130      = "kubernetes-before-1.30"
	before130Nodes = "kubernetes-before-1.30-nodes-attach"
	oldest         = "v1.24.17"
	before         = "v1.29.15-gke.100"
)

// noPolicies are the values for who accepts that nothing bounds the nodes.
func noPolicies() values { return values{"policy": values{"enabled": false}} }

// old are all variants for releases before 1.30, of kustomize and of Helm.
func old(t *testing.T) map[string][2][]*unstructured.Unstructured {
	t.Helper()
	all := map[string][2][]*unstructured.Unstructured{
		"nodes attach": {overlay(t, "kubeadm", before130Nodes), releaseOn(t, oldest, noPolicies())},
		"attach":       {overlay(t, "kubeadm", "attach", before130), releaseOn(t, before, values{"attach": values{"enabled": true}})},
		"everything": {overlay(t, "kubeadm", "plugin-dir", "attach", "monitoring", "migrate", before130), releaseOn(t, oldest, values{
			"volumePluginDir": distribution.DefaultPluginDir, "attach": values{"enabled": true}, "metrics": values{"enabled": true}, "migrate": values{"enabled": true},
		})},
	}
	for _, d := range distribution.All() {
		all[d.Name] = [2][]*unstructured.Unstructured{overlay(t, d.Name, before130), releaseOn(t, oldest, values{"distribution": d.Name})}
	}
	return all
}

// TestOldChartIsOverlay: before 1.30, too, kustomize and Helm make the same objects.
func TestOldChartIsOverlay(t *testing.T) {
	for name, objects := range old(t) {
		t.Run(name, func(t *testing.T) { compare(t, objects[0], objects[1]) })
	}
}

// TestOldTypes: Kubernetes 1.24 knows all kinds and fields of what is made for it.
func TestOldTypes(t *testing.T) {
	program := filepath.Join(t.TempDir(), "oldtypes")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../oldtypes"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build oldtypes: %v\n%s", err, out)
	}
	for name, objects := range old(t) {
		for i, of := range []string{"kustomize", "Helm"} {
			if unknown := notKnown(t, program, objects[i]); unknown != "" {
				t.Errorf("%s of %s:\n%s", name, of, unknown)
			}
		}
	}
	// docs/migrate.md has people apply it by itself.
	if unknown := notKnown(t, program, overlay(t, "../migrate", before130)); unknown != "" {
		t.Errorf("install/migrate:\n%s", unknown)
	}
	if unknown := notKnown(t, program, migrateJob(t)); unknown != "" {
		t.Errorf("install/migrate/job.yaml:\n%s", unknown)
	}
	unknown := notKnown(t, program, overlay(t, "kubeadm"))
	for _, want := range []string{"appArmorProfile", `no kind "ValidatingAdmissionPolicy"`} {
		if !strings.Contains(unknown, want) {
			t.Errorf("what is for 1.30 is taken for 1.24, with %s: %q", want, unknown)
		}
	}
}

// notKnown is what the program does not know of the objects. CRDs are left out: they are not
// Kubernetes' own, and TestMonitoring looks at them.
func notKnown(t *testing.T, program string, objects []*unstructured.Unstructured) string {
	t.Helper()
	var lines bytes.Buffer
	for _, o := range objects {
		if strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/") {
			continue
		}
		if err := json.NewEncoder(&lines).Encode(o.Object); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(program)
	c.Stdin = &lines
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestOldRights: where no policy bounds the tokens, none that is on all nodes attaches or
// detaches, but for who accepts it.
func TestOldRights(t *testing.T) {
	const volumeAttachments = " volumeattachments.storage.k8s.io"
	cut := []string{"create" + volumeAttachments, "delete" + volumeAttachments}
	all := old(t)
	for _, name := range []string{"kubeadm", "attach", "nodes attach", "everything"} {
		objects := all[name]
		for i, of := range []string{"kustomize", "Helm"} {
			t.Run(name+" of "+of, func(t *testing.T) {
				accepted := name == "nodes attach"
				got := given(t, objects[i])[nodeAccount]
				for _, right := range cut {
					if slices.Contains(got, right) != accepted {
						t.Errorf("whether nodes may %s: %t", right, !accepted)
					}
				}
				if !slices.Contains(got, "list"+volumeAttachments) {
					t.Errorf("they cannot see what is attached: %q", got)
				}
				if offControlPlane := controllerOnNodes(t, objects[i]); offControlPlane != accepted {
					t.Errorf("the controller's token is on all nodes: %t", offControlPlane)
				}
			})
		}
	}
}

// controllerOnNodes reports whether a pod with the controller's token may be anywhere.
func controllerOnNodes(t *testing.T, objects []*unstructured.Unstructured) bool {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
			continue
		}
		spec := get[corev1.PodSpec](t, o, "spec.template.spec")
		_, confined := spec.NodeSelector["node-role.kubernetes.io/control-plane"]
		if spec.ServiceAccountName == controllerAccount && !confined {
			return true
		}
	}
	return false
}

// TestOldTokens: the right to the tokens of all ServiceAccounts is not given without the
// policy that bounds it.
func TestOldTokens(t *testing.T) {
	v := values{"rbac": values{"serviceAccountTokens": values{"enabled": true, "audiences": []any{"vault"}}}}
	_, err := render.Release{Namespace: "flex2csi", Values: render.Example(v), Kubernetes: before}.Objects(chart)
	if err == nil || !strings.Contains(err.Error(), "Kubernetes 1.30") {
		t.Errorf("Helm says %v", err)
	}
}

// TestOldNotes: Helm says what is not bounded, and what does not work for it.
func TestOldNotes(t *testing.T) {
	const cut, open, pods = "they neither\nattach nor detach", "There is no policy: who steals", "There is no policy for pods"
	for name, test := range map[string]struct {
		kubernetes string
		values     values
		want       []string
	}{
		"before 1.30":    {before, values{}, []string{cut, pods}},
		"nodes attach":   {before, noPolicies(), []string{open, pods}},
		"1.30":           {"v1.30.0-rc.1+k3s1", values{}, nil},
		"1.30, switched": {"v1.30.14", noPolicies(), []string{open}},
	} {
		texts, err := render.Release{Namespace: "flex2csi", Values: render.Example(test.values), Kubernetes: test.kubernetes}.Texts(chart)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, text := range []string{cut, open, pods} {
			if strings.Contains(texts["flex2csi/templates/NOTES.txt"], text) {
				got = append(got, text)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: want (-), in the notes (+):\n%s", name, diff)
		}
	}
}

// TestOldest: Helm refuses what is older than the types that the manifests are held against.
func TestOldest(t *testing.T) {
	minor := regexp.MustCompile(`k8s\.io/api v0\.(\d+)\.`).FindStringSubmatch(readFile(t, "../oldtypes/go.mod"))
	want := `kubeVersion: ">=1.` + minor[1] + `.0-0"`
	if !strings.Contains(readFile(t, chart+"/Chart.yaml"), want) {
		t.Errorf("Chart.yaml has no %s", want)
	}
}
