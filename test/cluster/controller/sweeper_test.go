package controller_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// connect returns the cluster as the user of a token sees it.
func (c *cluster) connect(token string) *kube.Cluster {
	c.t.Helper()
	k, err := kube.Connect(kube.Options{Kubeconfig: c.Kubeconfig(token)})
	c.must(err)
	c.run(k.Run)
	return k
}

// run does something until the test ends.
func (c *cluster) run(do func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); do(ctx) }()
	c.t.Cleanup(func() { stop(); <-done })
}

// testSweeper: with the rights and under the policy of the controller it deletes
// what a node that was deleted and one that is out of service have left, and what
// kube-controller-manager has forgotten; and nothing else.
func testSweeper(c *cluster) {
	admin := c.connect(controlplane.Admin)
	for _, o := range []struct{ volume, node, by string }{
		{"used", "node-1", objects.AttachedByNode},
		{"unused", "node-1", objects.AttachedByNode},
		{"deleted", "node-5", objects.AttachedByNode},
		{"dead", "node-6", objects.AttachedByNode},
		{"forgotten", "node-1", objects.AttachedByController},
	} {
		c.flex(o.volume)
		_, err := admin.Attachments("", o.by).Attach(c.t.Context(), &csivol.Attachment{
			Driver: csiDriver, Handle: o.volume, Node: o.node, FlexDriver: flexDriver, Name: o.volume,
			AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce},
		})
		c.must(err)
	}
	// The kubelet's pod, which kube-controller-manager must not attach for.
	c.podWithoutAttach("used", "node-1")
	c.must(c.Admin().CoreV1().Nodes().Delete(c.t.Context(), "node-5", metav1.DeleteOptions{}))
	c.patchStatus("node-6", map[string]any{"conditions": []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}})
	c.taint("node-6")

	k := c.connect(c.token("sweeper"))
	now := time.Now()
	s := &controller.Sweeper{
		View: k, Delete: k.Attachments("", objects.AttachedByController).Detach, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now },
	}
	s.Sweep(c.t.Context(), true)
	c.wantLeft("deleted forgotten unused used")
	now = now.Add(11 * time.Minute)
	s.Sweep(c.t.Context(), true)
	c.wantLeft("forgotten unused used")
	now = now.Add(11 * time.Minute)
	s.Sweep(c.t.Context(), true)
	c.wantLeft("unused used")
	for _, f := range s.Result().Findings {
		want := map[string]controller.AttachmentState{"used": controller.InUse, "unused": controller.Unused}[objects.AttachmentPersistentVolume(f.VolumeAttachment)]
		if want != "" && f.State != want {
			c.t.Errorf("%s: %s (%s), want %s", objects.AttachmentPersistentVolume(f.VolumeAttachment), f.State, f.Reason, want)
		}
	}
	c.wantCalls("deleted", "attach node-5", "detach node-5")
	c.wantCalls("dead", "attach node-6", "detach node-6")
	c.wantCalls("forgotten", "attach node-1", "detach node-1")
	for _, volume := range []string{"used", "unused"} {
		c.must(c.Admin().StorageV1().VolumeAttachments().Delete(c.t.Context(), objects.AttachmentName(volume, csiDriver, "node-1"), metav1.DeleteOptions{}))
	}
}

// podWithoutAttach makes a pod with a volume that kube-controller-manager does not
// attach: it attaches only for nodes that it manages.
func (c *cluster) podWithoutAttach(volume, node string) {
	c.t.Helper()
	body := []byte(`{"metadata":{"annotations":{"volumes.kubernetes.io/controller-managed-attach-detach":null}}}`)
	_, err := c.Admin().CoreV1().Nodes().Patch(c.t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{})
	c.must(err)
	time.Sleep(rounds) // it has to see that
	c.pod(volume, node)
}

func (c *cluster) taint(node string) {
	c.t.Helper()
	body := []byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`)
	_, err := c.Admin().CoreV1().Nodes().Patch(c.t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{})
	c.must(err)
}

// wantLeft checks which of the volumes of testSweeper are attached.
func (c *cluster) wantLeft(want string) {
	c.t.Helper()
	var left []string
	for volume, node := range map[string]string{"deleted": "node-5", "dead": "node-6", "forgotten": "node-1", "unused": "node-1", "used": "node-1"} {
		if c.attachment(volume, node) != nil {
			left = append(left, volume)
		}
	}
	slices.Sort(left)
	if got := strings.Join(left, " "); got != want {
		c.t.Errorf("attached are %s, want %s", got, want)
	}
}

// TestOneSweeps: never two at a time; another one takes over when the first ends,
// and when it cannot reach the API server any more.
func TestOneSweeps(t *testing.T) {
	p := controlplane.Start(t)
	p.Apply(install+"namespace.yaml", install+"rbac/controller.yaml")
	p.Node("node-1")
	c := &cluster{Plane: p, t: t}
	var leads atomic.Int32 // how many do
	turns := make(chan string, 10)
	candidate := func(name string) (proxy *controlplane.Proxy, stop context.CancelFunc) {
		x := p.Proxy()
		k, err := kube.Connect(kube.Options{Kubeconfig: x.Kubeconfig(c.token(name))})
		c.must(err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Lead(ctx, kube.Election{Namespace: namespace, Name: "flex2csi-controller", Identity: name, Duration: 4 * time.Second}, func(ctx context.Context) {
				if n := leads.Add(1); n != 1 {
					t.Errorf("%d sweep at a time", n)
				}
				turns <- name
				<-ctx.Done()
				leads.Add(-1)
			})
		}()
		t.Cleanup(func() { stop(); <-done })
		return x, stop
	}
	next := func() string {
		select {
		case name := <-turns:
			return name
		case <-time.After(patience):
			t.Fatal("no controller sweeps")
			return ""
		}
	}
	_, stopA := candidate("a")
	if name := next(); name != "a" {
		t.Fatalf("%s sweeps", name)
	}
	b, _ := candidate("b")
	stopA()
	if name := next(); name != "b" {
		t.Fatalf("after a it is %s", name)
	}
	candidate("c")
	b.Away()
	if name := next(); name != "c" {
		t.Fatalf("after b it is %s", name)
	}
}
