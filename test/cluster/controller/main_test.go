// Package controller_test has kube-controller-manager execute flexdriver, which
// calls flex2csi controller through a dot-file in the plugin directory,
// which has the real external-attacher attach: attach:true as it is installed,
// but for containers. The kubelet is played by the test.
package controller_test

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

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	install    = "../../../install/"
	flexDriver = "example.com/disk"
	csiDriver  = "disk.csi.example.com"
	namespace  = "flex2csi"
	// patience bounds each wait.
	patience = time.Minute
	// rounds is a few rounds of kube-controller-manager.
	rounds = 3 * time.Second
)

// A cluster is a control plane and flex2csi.
type cluster struct {
	*controlplane.Plane
	t *testing.T
	// dir is short: the path of a socket has at most 107 bytes.
	dir                            string
	kcm, csi, attacher, controller *controlplane.Part
}

// nodes of the cluster; each is called the same by the CSI driver.
func nodes() []string { return []string{"node-1", "node-2", "node-3", "node-4", "node-5", "node-6"} }

func start(t *testing.T) *cluster {
	t.Helper()
	testenv.Need(t, "root")
	dir, err := os.MkdirTemp("", "kcm") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &cluster{Plane: controlplane.Start(t), t: t, dir: dir}
	c.Apply(install + "namespace.yaml")
	c.ConfigMap(namespace, "flex2csi-config", map[string]string{"config.yaml": configuration()})
	c.Apply(install+"rbac/controller.yaml", install+"components/attach/attach-rbac.yaml", install+"policy/attachments.yaml")
	c.CSIDriver(csiDriver, storagev1.CSIDriverSpec{})
	args := []string{
		"--dir", c.path("storage"), "--name", csiDriver, "--attach", "--directories", "--call-log", c.path("calls"),
		"--endpoint", c.path("csi.sock"), "--controller-endpoint", c.path("ctl.sock"), "--node-id", "none",
	}
	for _, node := range nodes() {
		c.Node(node, controlplane.NodeDriver{Name: csiDriver, NodeID: node})
		args = append(args, "--known-node", node)
	}
	for _, volume := range []string{"life", "away", "killed", "two", "gone", "lost", "csi", "used", "unused", "deleted", "dead", "forgotten"} {
		args = append(args, "--volume", volume+"=64Mi")
	}
	c.csi = c.Program("csidriver", args...)
	c.Run(c.csi)
	c.wait("the CSI driver", func() bool { return exists(c.path("ctl.sock")) })
	c.attacher = c.StartAttacher(c.path("ctl.sock"))
	c.installDriver()
	c.controller = c.newController("controller")
	c.Run(c.controller)
	c.wait("the controller", func() bool { return exists(c.socket()) })
	c.kcm = c.StartControllerManager()
	return c
}

// installDriver has flexdriver install itself, as docs/controller.md says.
func (c *cluster) installDriver() {
	c.t.Helper()
	c.must(os.MkdirAll(c.PluginDir(), 0o755))
	flexdriver, err := testenv.Program(c.t.TempDir(), "FLEXDRIVER_BINARY", "../../../cmd/flexdriver")
	c.must(err)
	cmd := exec.Command(flexdriver, "install", "--driver", flexDriver, "--volume-plugin-dir", c.PluginDir(),
		"--backend", "csi", "--attach", "--controller-socket", "../.controller.sock", "--socket", c.path("none.sock"), "--state-dir", c.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("install the driver: %v\n%s", err, out)
	}
}

// configuration is the controller's, and the parameter of the policy.
func configuration() string {
	// The secrets are for the nodes: the controller can read neither.
	return fmt.Sprintf("apiVersion: flex2csi.io/v1alpha1\nkind: BridgeConfiguration\ndrivers:\n- flexDriver: %s\n  csiDriver: %s\n  secrets:\n    nodeStage: {secretRef: {name: credentials, namespace: kube-system}}\n    nodePublish: {file: /etc/flex2csi/not-here, key: password}\n", flexDriver, csiDriver)
}

// newController describes one, which has its own pod's token.
func (c *cluster) newController(name string) *controlplane.Part {
	c.t.Helper()
	c.must(os.WriteFile(c.path("config.yaml"), []byte(configuration()), 0o600))
	return c.Program("flex2csi", "controller", "--config", c.path("config.yaml"), "--socket", c.socket(),
		"--kubeconfig", c.Kubeconfig(c.token(name)), "-v")
}

// token is that of a controller's pod.
func (c *cluster) token(name string) string {
	c.t.Helper()
	return c.ServiceAccountToken(c.Pod(namespace, name, "node-1", "flex2csi-controller"))
}

// socket is where the driver looks for the controller.
func (c *cluster) socket() string { return filepath.Join(c.PluginDir(), ".controller.sock") }

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// with is the same cluster for a subtest.
func (c *cluster) with(t *testing.T) *cluster {
	d := *c
	d.t, d.Plane = t, c.Plane.With(t)
	return &d
}

// wait waits for something.
func (c *cluster) wait(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("timeout: %s", what)
		}
	}
}

// flex makes a volume: handle and PersistentVolume have the same name.
func (c *cluster) flex(name string) {
	c.t.Helper()
	c.FlexVolume(name, flexDriver, "ext4", map[string]string{"volumeHandle": name})
}

// pod makes a pod that uses a volume.
func (c *cluster) pod(volume, node string) *corev1.Pod {
	c.t.Helper()
	return c.Pod(metav1.NamespaceDefault, volume+"-on-"+node, node, "", volume)
}

func (c *cluster) deletePod(volume, node string) {
	c.t.Helper()
	c.must(c.Admin().CoreV1().Pods(metav1.NamespaceDefault).Delete(c.t.Context(), volume+"-on-"+node, metav1.DeleteOptions{}))
}

// attachment is the VolumeAttachment; nil: there is none.
func (c *cluster) attachment(volume, node string) *storagev1.VolumeAttachment {
	c.t.Helper()
	o, err := c.Admin().StorageV1().VolumeAttachments().Get(c.t.Context(), objects.AttachmentName(volume, csiDriver, node), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	c.must(err)
	return o
}

// reported is what kube-controller-manager says about a volume in the status of
// a node: the device, "" if it does not have it.
func (c *cluster) reported(unique, node string) (device string, there bool) {
	c.t.Helper()
	n, err := c.Admin().CoreV1().Nodes().Get(c.t.Context(), node, metav1.GetOptions{})
	c.must(err)
	for _, v := range n.Status.VolumesAttached {
		if string(v.Name) == unique {
			return v.DevicePath, true
		}
	}
	return "", false
}

// unique is what kube-controller-manager calls a FlexVolume that is attached.
func unique(volume string) string { return flexDriver + "/" + volume }

// waitAttached waits until kube-controller-manager has attached a volume.
func (c *cluster) waitAttached(volume, node string) {
	c.t.Helper()
	c.wait(volume+" on "+node, func() bool { _, there := c.reported(unique(volume), node); return there })
	if device, _ := c.reported(unique(volume), node); device != "csi:"+volume {
		c.t.Errorf("the device of %s is %q", volume, device)
	}
	o := c.attachment(volume, node)
	if o == nil || !o.Status.Attached || o.Labels[objects.AttachedByLabel] != objects.AttachedByController {
		c.t.Errorf("%s is reported as attached, and its VolumeAttachment is %+v", volume, o)
	}
}

func (c *cluster) waitDetached(volume, node string) {
	c.t.Helper()
	c.wait("the end of "+volume+" on "+node, func() bool {
		_, there := c.reported(unique(volume), node)
		return !there && c.attachment(volume, node) == nil
	})
}

// inUse plays the kubelet, which says what it uses.
func (c *cluster) inUse(node string, volumes ...string) {
	c.t.Helper()
	names := []corev1.UniqueVolumeName{}
	for _, v := range volumes {
		names = append(names, corev1.UniqueVolumeName(unique(v)))
	}
	c.patchStatus(node, map[string]any{"volumesInUse": names})
}

func (c *cluster) patchStatus(node string, status map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"status": status})
	c.must(err)
	_, err = c.Admin().CoreV1().Nodes().Patch(c.t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	c.must(err)
}

// callout executes the driver as kube-controller-manager does.
func (c *cluster) callout(args ...string) flex.DriverStatus {
	c.t.Helper()
	out, err := exec.Command(filepath.Join(c.PluginDir(), "example.com~disk/disk"), args...).CombinedOutput()
	c.must(err)
	var s flex.DriverStatus
	c.must(json.Unmarshal(out, &s))
	return s
}

// wantCalls checks what the CSI driver was asked for, for a volume: attach and
// detach, each with OK, by node.
func (c *cluster) wantCalls(volume string, want ...string) {
	c.t.Helper()
	list, err := calls.Read(c.path("calls"))
	c.must(err)
	var got []string
	for _, call := range list {
		name := map[string]string{"ControllerPublishVolume": "attach ", "ControllerUnpublishVolume": "detach "}[call.Method] + call.Node
		// The attacher repeats what it does not see yet that it has done.
		if call.Volume == volume && call.Code == "OK" && strings.Contains(name, " ") && (len(got) == 0 || got[len(got)-1] != name) {
			got = append(got, name)
		}
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: the CSI driver was asked to %q, want %q", volume, got, want)
	}
}
