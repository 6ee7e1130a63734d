package cluster

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A node has a daemon and a node service of the CSI driver.
type node struct {
	*testenv.KubeletDir
	w    *world
	name string // in Kubernetes
	dir  string
	// api is the daemon's way to the API server.
	api *controlplane.Proxy
	// driver is the node service, daemon flex2csi serve of bridge.
	driver, daemon *controlplane.Part
	bridge         *daemon.Daemon
	// timeout is what flexdriver gives a callout.
	timeout time.Duration
}

// addNode starts one.
func (w *world) addNode(o options) *node {
	w.t.Helper()
	num := len(w.nodes) + 1
	n := &node{
		KubeletDir: testenv.Kubelet(w.t), w: w, timeout: patience,
		name: fmt.Sprintf("%s-node-%d", w.name, num),
		dir:  fmt.Sprintf("node-%d", num),
	}
	w.nodes = append(w.nodes, n)
	id := n.dir
	if w.backend != nil {
		id = w.backend.nodeID
	}
	w.Node(n.name, controlplane.NodeDriver{Name: w.driver, NodeID: id, Count: o.count})
	n.driver = w.csiDriver(o, n.dir, n.dir)
	w.Run(n.driver)
	n.api = w.Proxy()
	token := w.ServiceAccountToken(w.Pod("flex2csi", n.name, n.name, "flex2csi-node"))
	n.bridge = &daemon.Daemon{
		Dir: n.path(""), KubeletDir: n.Root, NodeName: n.name,
		Drivers: []daemon.Driver{{FlexDriver: w.flexDriver, CSIDriver: w.driver, Endpoint: n.path("csi.sock"), More: o.config}},
	}
	w.must(n.bridge.Configure())
	n.daemon = w.Program("flex2csi", n.bridge.Args("--kubeconfig", n.api.Kubeconfig(token),
		"--reconcile-interval", "1s", "--grace", cmp.Or(o.grace, bridge.DefaultGrace).String())...)
	if !o.noDaemon {
		w.Run(n.daemon)
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.w.dir, n.dir, name) }

// call makes a callout; one that is not answered in time has failed.
func (n *node) call(args ...string) flex.DriverStatus {
	n.w.t.Helper()
	status, err := n.bridge.Call(context.Background(), n.w.flexDriver, n.timeout, args...)
	if err != nil {
		return flex.DriverStatus{Status: flex.StatusFailure, Message: err.Error()}
	}
	return status
}

// must makes a callout that has to succeed.
func (n *node) must(args ...string) flex.DriverStatus {
	n.w.t.Helper()
	status := n.call(args...)
	if status.Status != flex.StatusSuccess {
		n.w.t.Fatalf("%s answered %s: %s", args[0], status.Status, status.Message)
	}
	return status
}

// mustFail makes a callout that has to fail, and to say all of these words.
func (n *node) mustFail(status flex.DriverStatus, words ...string) {
	n.w.t.Helper()
	if status.Status != flex.StatusFailure {
		n.w.t.Errorf("answered %+v, want a Failure", status)
	}
	for _, word := range words {
		if !strings.Contains(status.Message, word) {
			n.w.t.Errorf("the message %q does not say %q", status.Message, word)
		}
	}
}

// argument is the kubelet's JSON. Only mount tells of the pod.
func (n *node) argument(v *volume, pod string) string {
	n.w.t.Helper()
	o := flex.Options{FSType: "ext4", VolumeName: v.name, User: v.options}
	if pod != "" {
		o.PodName, o.PodNamespace, o.PodUID, o.ServiceAccountName = pod, "default", pod, "default"
	}
	text, err := o.MarshalArgument()
	if err != nil {
		n.w.t.Fatal(err)
	}
	return text
}

func (n *node) podDir(v *volume, pod string) string {
	return n.PodVolumeDir(pod, n.w.flexDriver, v.name)
}

// tryMount gives a volume to a pod.
func (n *node) tryMount(v *volume, pod string) flex.DriverStatus {
	n.w.t.Helper()
	return n.call("mount", n.podDir(v, pod), n.argument(v, pod))
}

func (n *node) mount(v *volume, pod string) {
	n.w.t.Helper()
	if status := n.tryMount(v, pod); status.Status != flex.StatusSuccess {
		n.w.t.Fatalf("mount answered %s: %s", status.Status, status.Message)
	}
}

// retryMount mounts as a kubelet does, which asks again.
func (n *node) retryMount(v *volume, pod string) {
	n.w.t.Helper()
	var status flex.DriverStatus
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if status = n.tryMount(v, pod); status.Status != flex.StatusFailure {
			break
		}
	}
	if !success(status) {
		n.w.t.Errorf("mount answered at last %+v", status)
	}
}

// refused wants a mount to fail for a reason. On a busy machine a callout of three
// seconds can end before the API server has told the reason. The message says that
// then, and the mount is asked for again, as the kubelet does.
func (n *node) refused(v *volume, pod string, words ...string) {
	n.w.t.Helper()
	status := n.tryMount(v, pod)
	for deadline := time.Now().Add(patience); strings.Contains(status.Message, "away or busy") && time.Now().Before(deadline); {
		status = n.tryMount(v, pod)
	}
	n.mustFail(status, words...)
}

func (n *node) unmount(v *volume, pod string) {
	n.w.t.Helper()
	dir := n.podDir(v, pod)
	n.must("unmount", dir)
	if mounted, err := mountinfo.Mounted(dir); err != nil || mounted {
		n.w.t.Errorf("after unmount: mounted %t, %v", mounted, err)
	}
}

// forgetDriver takes the CSI driver out of the CSINode object.
func (w *world) forgetDriver(n *node) {
	w.t.Helper()
	_, err := w.Admin().StorageV1().CSINodes().Patch(w.t.Context(), n.name, types.MergePatchType, []byte(`{"spec":{"drivers":[]}}`), metav1.PatchOptions{})
	w.must(err)
}

// attachmentName is the one that the control plane would take.
func (n *node) attachmentName(v *volume) string {
	return objects.AttachmentName(v.handle, n.w.driver, n.name)
}

// attachment is the VolumeAttachment, nil if there is none.
func (n *node) attachment(v *volume) *storagev1.VolumeAttachment {
	n.w.t.Helper()
	return n.w.attachmentNamed(n.attachmentName(v))
}

// wantNothing checks that nothing is mounted, recorded or attached here, or
// comes to that without a call.
func (n *node) wantNothing() {
	n.w.t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.Root))
	if err != nil || len(mounts) > 0 {
		n.w.t.Errorf("still mounted: %v, %v", mounts, err)
	}
	var left []string
	n.w.eventually(func() bool {
		left, err = filepath.Glob(n.path("state/" + n.w.driver + "-*.json"))
		for _, o := range n.w.attachments() {
			if o.Spec.NodeName == n.name {
				left = append(left, o.Name)
			}
		}
		return err == nil && len(left) == 0
	}, func() { n.w.t.Errorf("still recorded or attached: %q, %v", left, err) })
}
