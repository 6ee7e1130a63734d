package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// startController starts flex2csi controller, and installs the driver
// that kube-controller-manager calls.
func (w *world) startController() *controlplane.Part {
	w.t.Helper()
	w.install(w.PluginDir(), "--attach", "--controller-socket", filepath.Base(w.controllerSocket()), "--socket", w.path("none/daemon.sock"), "--state-dir", w.path("none"))
	return w.runController(w.controllerSocket())
}

// runController starts flex2csi controller.
func (w *world) runController(socket string) *controlplane.Part {
	w.t.Helper()
	n := w.nodes[0]
	token := w.ServiceAccountToken(w.Pod("flex2csi", n.name+"-controller", n.name, "flex2csi-controller"))
	part := w.Program("flex2csi", "controller", "--config", n.path("config.yaml"),
		"--socket", socket, "--kubeconfig", w.Kubeconfig(token))
	w.Run(part)
	return part
}

func (w *world) controllerSocket() string {
	return filepath.Join(w.PluginDir(), strings.ReplaceAll(w.flexDriver, "/", "~"), ".controller.sock")
}

// testByControlPlane: attach:true, from the pod that kube-controller-manager
// sees to the detach after it is gone, with all of them killed in between.
func testByControlPlane(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{config: []string{"attach: VolumeAttachment"}})
	controller := w.startController()
	n, v := w.nodes[0], w.volume("disk")
	w.wait("the controller", func() bool { return exists(w.controllerSocket()) })
	n.mustFail(w.callController("attach", n.argument(v, ""), n.name), "which no pod of node "+n.name+" uses") // but an inline volume wants
	pod := w.Pod(metav1.NamespaceDefault, v.name, n.name, "", v.name)
	device := n.untilListed(v)
	o := n.attachment(v)
	if o == nil || !o.Status.Attached || o.Labels[objects.AttachedByLabel] != objects.AttachedByController {
		t.Fatalf("the attachment is %+v", o)
	}
	n.must("waitforattach", device, n.argument(v, ""))
	n.must("mountdevice", n.DeviceMountPath(w.flexDriver, v.name), device, n.argument(v, ""))
	n.mount(v, "pod-a")
	n.reportInUse(v)
	w.must(controller.Restart())
	w.must(c.kcm.Restart())
	w.must(n.daemon.Restart())
	time.Sleep(reconciled)
	n.mustFail(w.callController("detach", v.name, n.name), "in use", n.name)
	w.must(w.Admin().CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	n.unmount(v, "pod-a")
	n.must("unmountdevice", n.DeviceMountPath(w.flexDriver, v.name))
	if o := n.attachment(v); o == nil || o.DeletionTimestamp != nil {
		t.Errorf("before kube-controller-manager detaches: %+v", o)
	}
	n.reportInUse()
	n.wantNothing()
	w.wantAttached(v.handle, 1)
}

// testAttachFails: what keeps kube-controller-manager's volume from being attached is an
// Event of the PersistentVolume, counted when it comes again.
func testAttachFails(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{config: []string{"attach: VolumeAttachment"}})
	w.startController()
	n, v := w.nodes[0], w.volume("disk")
	for times := range int32(2) {
		w.fail(fault.Rule{Method: "ControllerPublishVolume", Volume: v.handle, Code: codes.Internal, Message: "the array is away"})
		pod := w.Pod(metav1.NamespaceDefault, fmt.Sprintf("%s-%d", v.name, times), n.name, "", v.name)
		w.wait("an Event", func() bool {
			events, err := w.Admin().CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + v.name})
			w.must(err)
			return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return strings.Contains(e.Message, "the array is away") && e.Source.Component == "flex2csi" && e.Count > times
			})
		})
		w.fail()
		n.untilListed(v)
		w.must(w.Admin().CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
		n.reportInUse()
		n.wantNothing()
	}
	w.wantAttached(v.handle, 2)
}

// install installs flexdriver in a plugin directory, and returns where it is.
func (w *world) install(pluginDir string, flags ...string) (dir string) {
	w.t.Helper()
	flexdriver, err := testenv.Program(w.t.TempDir(), "FLEXDRIVER_BINARY", "../../cmd/flexdriver")
	w.must(err)
	flags = append([]string{"install", "--driver", w.flexDriver, "--volume-plugin-dir", pluginDir, "--backend", "csi"}, flags...)
	if out, err := exec.Command(flexdriver, flags...).CombinedOutput(); err != nil {
		w.t.Fatalf("install the driver: %v\n%s", err, out)
	}
	dir = filepath.Join(pluginDir, strings.ReplaceAll(w.flexDriver, "/", "~"))
	w.t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// execute makes a callout with the flexdriver that is installed in a directory.
func (w *world) execute(dir string, args ...string) (status flex.DriverStatus) {
	w.t.Helper()
	out, _ := exec.Command(filepath.Join(dir, filepath.Base(w.flexDriver)), args...).Output() // a Failure has an exit status, too
	w.must(json.Unmarshal(out, &status))
	return status
}

// callController makes a callout as kube-controller-manager does.
func (w *world) callController(args ...string) flex.DriverStatus {
	w.t.Helper()
	return w.execute(filepath.Join(w.PluginDir(), strings.ReplaceAll(w.flexDriver, "/", "~")), args...)
}

// untilListed waits until kube-controller-manager says that a FlexVolume is
// attached, and returns the device that it tells the kubelet.
func (n *node) untilListed(v *volume) (device string) {
	n.w.t.Helper()
	unique := corev1.UniqueVolumeName(n.w.flexDriver + "/" + v.name)
	n.w.wait("kube-controller-manager to attach", func() bool {
		node, err := n.w.Admin().CoreV1().Nodes().Get(n.w.t.Context(), n.name, metav1.GetOptions{})
		n.w.must(err)
		at := slices.IndexFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == unique })
		if at >= 0 {
			device = node.Status.VolumesAttached[at].DevicePath
		}
		return at >= 0
	})
	return device
}

// reportInUse says which volumes are in use, as a kubelet does.
func (n *node) reportInUse(volumes ...*volume) {
	n.w.t.Helper()
	names := []string{}
	for _, v := range volumes {
		names = append(names, n.w.flexDriver+"/"+v.name)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesInUse": names}})
	n.w.must(err)
	_, err = n.w.Admin().CoreV1().Nodes().Patch(n.w.t.Context(), n.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	n.w.must(err)
}

// testOutOfService: a node dies with a volume and is declared dead. What is
// attached to it is detached, and the volume comes to another node.
func testOutOfService(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{nodes: 2})
	dead, other, v := w.nodes[0], w.nodes[1], w.volume("disk")
	dead.mount(v, "pod-a")
	dead.crash()
	w.declareDead(dead)
	w.startController()
	w.eventually(func() bool { return dead.attachment(v) == nil }, func() { t.Errorf("a dead node still has %+v", dead.attachment(v)) })
	other.retryMount(v, "pod-b")
	other.unmount(v, "pod-b")
	other.wantNothing()
	w.wantAttached(v.handle, 2)
}

// crash is the end of a node: nothing runs and nothing is mounted there.
func (n *node) crash() {
	n.w.t.Helper()
	n.daemon.Kill()
	n.driver.Kill()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.Root))
	n.w.must(err)
	for _, m := range slices.Backward(mounts) {
		n.w.must(unix.Unmount(m.Mountpoint, unix.MNT_DETACH))
	}
}

// declareDead is what the node controller and a person do about a dead node.
func (w *world) declareDead(n *node) {
	w.t.Helper()
	nodes := w.Admin().CoreV1().Nodes()
	_, err := nodes.Patch(w.t.Context(), n.name, types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`), metav1.PatchOptions{}, "status")
	w.must(err)
	_, err = nodes.Patch(w.t.Context(), n.name, types.StrategicMergePatchType,
		[]byte(`{"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	w.must(err)
}
