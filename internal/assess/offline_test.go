package assess_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/assess"
)

func offline(t *testing.T, name string) *assess.Input {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata/offline", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in := &assess.Input{Source: name}
	if err := assess.Manifests(name, file, in); err != nil {
		t.Fatal(err)
	}
	return in
}

// TestAnyKind: an upgrade gate said "there are no FlexVolumes" for kinds that it did not know
// (sabre1041/openshift-flexvolume-cifs: a DeploymentConfig, a Template).
func TestAnyKind(t *testing.T) {
	for name, want := range map[string][]string{
		"dc.yaml":            {"portal DeploymentConfig/web/s openshift.io/cifs spec.template.spec.volumes[0].flexVolume"},
		"template.yaml":      {"portal Template/t/s openshift.io/cifs objects[0].spec.template.spec.volumes[0].flexVolume"},
		"podtemplate.yaml":   {"portal PodTemplate/worker/scratch example.com/lvm template.spec.volumes[0].flexVolume"},
		"rollout.yaml":       {"portal Rollout/guestbook/data fstab/cifs spec.template.spec.volumes[0].flexVolume"},
		"replicaset.yaml":    {"portal ReplicaSet/guestbook-1/data fstab/cifs spec.template.spec.volumes[0].flexVolume"},
		"knative.yaml":       {"portal Service/hello/data example.com/nfs spec.template.spec.volumes[0].flexVolume"},
		"helmrelease.yaml":   {"ci HelmRelease/jenkins/home example.com/nfs spec.values.persistence.volumes[0].flexVolume"},
		"application.yaml":   {"argocd Application/grafana/plugins example.com/nfs spec.source.helm.values.extraVolumes[0].flexVolume"},
		"workflow.yaml":      {"ci WorkflowTemplate/build/cache fstab/cifs spec.templates[0].volumes[0].flexVolume", "ci WorkflowTemplate/build/src fstab/cifs spec.volumes[0].flexVolume"},
		"crossplane.yaml":    {"Composition/share/volume example.com/nfs spec.resources[0].base.spec.forProvider.manifest.spec.flexVolume"},
		"pulumi.yaml":        {"ci Program/web/data example.com/nfs program.resources.web.properties.spec.template.spec.volumes[0].flexVolume"},
		"terraform.yaml":     {"document/without a name/without a name example.com/nfs planned_values.root_module.resources[0].values.spec[0].persistent_volume_source[0].flex_volume[0]"},
		"kustomization.yaml": {"Kustomization/without a name/data example.com/nfs patches[0].patch[0].value.flexVolume"},
		"subscription.yaml":  {"operators ClusterServiceVersion/agent.v1/d example.com/nfs spec.install.spec.deployments[0].spec.template.spec.volumes[0].flexVolume"},
		"configmap.yaml":     {"ci ConfigMap/spark/data example.com/nfs data.pod-template.yaml.spec.volumes[0].flexVolume"},
		"harmless.yaml":      nil,
	} {
		t.Run(name, func(t *testing.T) {
			in := offline(t, name)
			r := assessed(t, in)
			var got []string
			for _, i := range r.Items {
				got = append(got, strings.TrimSpace(strings.Join([]string{i.Namespace, i.Name, i.FlexDriver, i.Path}, " ")))
			}
			if diff := cmp.Diff(want, got); diff != "" || len(r.Incomplete) > 0 || in.Foreign() != nil {
				t.Errorf("incomplete %q, %v, (-want +got):\n%s", r.Incomplete, in.Foreign(), diff)
			}
		})
	}
}

// TestNotUnderstood: what may have FlexVolumes, and is not understood, is counted and named.
func TestNotUnderstood(t *testing.T) {
	r := assessed(t, offline(t, "unclear.yaml"))
	all := strings.Join(r.Incomplete, "\n")
	for _, want := range []string{
		"1 of kind ApplicationSet: argocd/all: what it renders was not read", "1 of kind HelmChart: kube-system/traefik: what",
		"1 of kind ConfigMap: ci/chart: data.deployment.yaml is a text with a flexVolume",
		"1 of kind Workspace: share: spec.forProvider.module is a text with a flexVolume",
		"1 of kind Template: portal/t: objects[0].spec.volumes[0].flexVolume is a string",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if len(r.Incomplete) != 5 || r.FlexVolumes != 0 || len(r.Next) != 0 {
		t.Errorf("%q, %d, %v", r.Incomplete, r.FlexVolumes, r.Next)
	}
}

// TestForeign: of nothing, of what kubectl prints when it fails, and of a page to sign in the
// assessment was that there are no FlexVolumes, with exit status 0.
func TestForeign(t *testing.T) {
	for name, want := range map[string]string{
		"kubectl-error.txt":        "You must be logged in to the server (Unauthorized)",
		"kubectl-server-error.txt": "Error from server (Forbidden)",
		"login.html":               "login.html, document at line 1: ",
		"status.json":              "it is no object, but an answer of the API server: Unauthorized",
		"nokind.json":              "unauthorized",
		"empty.yaml":               "read empty.yaml: it is empty",
	} {
		if err := offline(t, name).Foreign(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	// A list without items says something.
	if in := read(t, "apiVersion: v1\nkind: List\nitems: []\n"); in.Foreign() != nil {
		t.Error(in.Foreign())
	}
	// Among others it counts.
	in := read(t, "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\nerror: Unauthorized\n")
	if r := assessed(t, in); in.Foreign() != nil || len(r.Incomplete) != 1 {
		t.Errorf("%v, %q", in.Foreign(), r.Incomplete)
	}
}

// TestRefused: for what neither the kubelet nor the bridge serves the next step was to write a
// mapping (microsoft/K8s-Storage-Plugins#9, kubernetes/kubernetes#63175), or nothing.
func TestRefused(t *testing.T) {
	for name, want := range map[string]string{
		"win.yaml":       "Windows: ",
		"cronjob.yaml":   "Windows: ",
		"winpod.yaml":    "Windows: ",
		"windaemon.yaml": "Windows: ",
		"novendor.yaml":  `driver name "azure-cifs" has no vendor, which flex2csi does not support`,
	} {
		r := assessed(t, offline(t, name))
		if len(r.Items) != 1 || r.Items[0].Result != "Unsupported" || !strings.HasPrefix(r.Items[0].Reason, want) {
			t.Errorf("%s: %+v", name, r.Items)
		}
		if len(r.Next) != 1 || !strings.Contains(r.Next[0].Do, want) {
			t.Errorf("%s: next %+v", name, r.Next)
		}
	}
	for name, want := range map[string][]string{
		"mo.yaml":     {"a the kubelet refuses a FlexVolume with spec.mountOptions", "b the kubelet gives no FlexVolume to a pod as a block device"},
		"refuse.yaml": {"a-mountoptions the kubelet refuses", "b-block the kubelet gives no"},
	} {
		r := assessed(t, offline(t, name))
		for i, want := range want {
			if got := r.Items[i].Name + " " + r.Items[i].Reason; !strings.HasPrefix(got, want) || r.Items[i].Result != "Unsupported" {
				t.Errorf("%s: %q %s, want %q", name, got, r.Items[i].Result, want)
			}
		}
	}
}

// TestAttachThemselves: on ACK kubelets run with enableControllerAttachDetach=false, which the
// Node shows, and the report said Ready of disks that no CSI driver would attach.
func TestAttachThemselves(t *testing.T) {
	const objects = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: d}\nspec: {flexVolume: {driver: %s, options: {VolumeId: d-1, server: s}}}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: node-1, annotations: {%s}}\n"
	const csiDriver = "---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: diskplugin.csi.alibabacloud.com}\nspec: {attachRequired: %t}\n"
	const controlled = "volumes.kubernetes.io/controller-managed-attach-detach: '%s'"
	for name, test := range map[string]struct {
		driver, annotations string
		want                bool
	}{
		"ACK":               {"alicloud/disk", "", true},
		"said to be false":  {"alicloud/disk", fmt.Sprintf(controlled, "false"), true},
		"the control plane": {"alicloud/disk", fmt.Sprintf(controlled, "true"), false},
		"a share":           {"alicloud/nas", "", false},
		"attachRequired":    {"alicloud/disk", "", true},
		// The vendor's own installation for such clusters.
		"attachRequired: false": {"alicloud/disk", "", false},
	} {
		manifests := fmt.Sprintf(objects, test.driver, test.annotations)
		if strings.HasPrefix(name, "attachRequired") {
			manifests += fmt.Sprintf(csiDriver, !strings.HasSuffix(name, "false"))
		}
		r := assessed(t, read(t, manifests))
		got := false
		for _, o := range r.Obstacles {
			got = got || strings.Contains(o.What, "kubelets of 1 nodes, such as node-1, attach by themselves")
		}
		if got != test.want {
			t.Errorf("%s: %+v", name, r.Obstacles)
		}
	}
}
