package cluster

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver"
)

// testObjects: what the CSIDriver object, a Secret and the pod's service account
// say gets to the node service.
func testObjects(t *testing.T, c *cluster) {
	yes := true
	w := newWorld(t, c, options{
		object: &storagev1.CSIDriverSpec{PodInfoOnMount: &yes, TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}}},
		config: []string{"serviceAccountTokens: true", "secrets: {nodeStage: {secretRef: {name: stage, namespace: default}}}"},
	})
	w.allowSecret("stage", "canary-secret")
	w.allowTokens("vault")
	n := w.nodes[0]
	heard := n.overhear()
	v := w.volume("disk")
	w.ServiceAccount("default", "web")
	pod := w.Pod("default", n.name+"-web", n.name, "web")
	dir := n.PodVolumeDir(string(pod.UID), w.flexDriver, v.name)
	text, err := flex.Options{
		FSType: "ext4", VolumeName: v.name, User: v.options,
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: string(pod.UID), ServiceAccountName: "web",
	}.MarshalArgument()
	w.must(err)
	w.wait("the policy, which the API server does not see at once", func() bool {
		for len(heard) > 0 {
			<-heard
		}
		return success(n.call("mount", dir, text))
	})
	stage, publish := (<-heard).(*csi.NodeStageVolumeRequest), (<-heard).(*csi.NodePublishVolumeRequest)
	if got := stage.GetSecrets()["key"]; got != "canary-secret" {
		t.Errorf("NodeStageVolume got the secrets %q", stage.GetSecrets())
	}
	if mode := stage.GetVolumeCapability().GetAccessMode().GetMode(); mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER && mode != csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER {
		t.Errorf("NodeStageVolume got the access mode %s", mode)
	}
	context := publish.GetVolumeContext()
	if got := context["csi.storage.k8s.io/pod.name"]; got != pod.Name {
		t.Errorf("NodePublishVolume got the pod %q", got)
	}
	var tokens map[string]struct{ Token string }
	if err := json.Unmarshal([]byte(context["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens); err != nil || tokens["vault"].Token == "" {
		t.Fatalf("NodePublishVolume got the tokens %d, %v", len(tokens), err)
	}
	n.wantNowhere(tokens["vault"].Token, "canary-secret")
	n.must("unmount", dir)
	n.wantNothing()
}

// allowSecret makes a Secret that nodes may read.
func (w *world) allowSecret(name, value string) {
	w.t.Helper()
	ctx, rbac := w.t.Context(), w.Admin().RbacV1()
	meta := metav1.ObjectMeta{Name: name, Namespace: "default"}
	_, err := w.Admin().CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": value}}, metav1.CreateOptions{})
	w.must(err)
	_, err = rbac.Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get"}},
	}}, metav1.CreateOptions{})
	w.must(err)
	_, err = rbac.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "flex2csi", Name: "flex2csi-node"}},
	}, metav1.CreateOptions{})
	w.must(err)
}

// allowTokens lets nodes make tokens, as docs/rbac.md says, for an audience.
func (w *world) allowTokens(audience string) {
	w.t.Helper()
	w.Apply("../../install/rbac/node-tokens.yaml")
	policies := w.Admin().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Get(w.t.Context(), "flex2csi-node-tokens", metav1.GetOptions{})
	w.must(err)
	for i := range policy.Spec.Variables {
		if v := &policy.Spec.Variables[i]; v.Name == "audiences" {
			v.Expression = "['" + audience + "']"
		}
	}
	_, err = policies.Update(w.t.Context(), policy, metav1.UpdateOptions{})
	w.must(err)
}

// overhear puts a node service of this process in the place of the node's, and
// returns the requests that put a volume there.
func (n *node) overhear() <-chan any {
	n.w.t.Helper()
	n.driver.Kill()
	heard := make(chan any, 100)
	d, err := csidriver.Listen(csidriver.Config{
		Name: n.w.driver, NodeID: n.dir, Dir: n.w.path("storage"), Endpoint: n.path("csi.sock"), Attach: true, Directories: true,
		Outer: []grpc.UnaryServerInterceptor{func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			switch request.(type) {
			case *csi.NodeStageVolumeRequest, *csi.NodePublishVolumeRequest:
				heard <- request
			}
			return handler(ctx, request)
		}},
	})
	n.w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	n.w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.w.t.Errorf("the driver ended: %v", err)
		}
	})
	return heard
}

// wantNowhere looks for secrets in the files of a daemon.
func (n *node) wantNowhere(secrets ...string) {
	n.w.t.Helper()
	files, err := filepath.Glob(n.path("state/*"))
	if err != nil || len(files) == 0 {
		n.w.t.Errorf("no files of the daemon: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		n.w.must(err)
		for i, secret := range secrets {
			if strings.Contains(string(text), secret) {
				n.w.t.Errorf("%s has secret %d", file, i)
			}
		}
	}
}

// testInline: who may create pods can claim any name and options.
func testInline(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	n.api.Requests()
	other := *v
	other.name = "data"
	n.mustFail(n.tryMount(&other, "pod-a"), "no PersistentVolume of that name")
	other = *v
	other.options = map[string]string{"volumeHandle": "of-another-user"}
	n.mustFail(n.tryMount(&other, "pod-a"), "other options")
	elsewhere, err := flex.Options{FSType: "ext4", VolumeName: v.name, User: v.options, PodName: "p", PodNamespace: "elsewhere", PodUID: "p", ServiceAccountName: "default"}.MarshalArgument()
	w.must(err)
	n.mustFail(n.call("mount", n.podDir(v, "p"), elsewhere), "in namespace elsewhere")
	if got := n.api.Requests(); got["create volumeattachments"] != 0 {
		t.Errorf("attached all the same: %v", got)
	}
	n.mount(v, "pod-a")
	n.unmount(v, "pod-a")
	n.wantNothing()
}

// testOrphan: an attachment of the node that its records do not know of, since
// they were lost.
func testOrphan(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	n.mount(v, "pod-a")
	before := n.attachment(v)
	n.unmount(v, "pod-a")
	n.daemon.Kill()
	w.must(os.RemoveAll(n.podDir(v, "pod-a"))) // as the kubelet does
	_, err := w.Admin().StorageV1().VolumeAttachments().Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: before.Name, Labels: before.Labels, Annotations: before.Annotations},
		Spec:       before.Spec,
	}, metav1.CreateOptions{})
	w.must(err)
	w.wait("the attacher", func() bool {
		o := n.attachment(v)
		return o != nil && o.Status.Attached
	})
	w.must(n.daemon.Start())
	n.wantNothing()
	w.wantAttached(v.handle, 2)
}
