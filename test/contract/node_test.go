package contract

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager/cache"
	"k8s.io/kubernetes/pkg/volume"
	volumetest "k8s.io/kubernetes/pkg/volume/testing"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

const (
	driverName = "example.com/disk"
	driverDir  = "example.com~disk" // k8s.io/utils/strings, EscapeQualifiedName
	namespaceA = "default"
)

// driverConfig is the dot-file next to the binary.
type driverConfig struct {
	APIVersion     string          `json:"apiVersion"`
	Kind           string          `json:"kind"`
	Backend        string          `json:"backend"`
	Driver         string          `json:"driver"`
	Capabilities   map[string]bool `json:"capabilities"`
	FSGroupPolicy  string          `json:"fsGroupPolicy,omitempty"`
	KubeletDir     string          `json:"kubeletDir"`
	DirectoryRoots []string        `json:"directoryRoots,omitempty"`
	ImageRoots     []string        `json:"imageRoots,omitempty"`
	DeviceRoots    []string        `json:"deviceRoots,omitempty"`
	SourceTypes    []string        `json:"sourceTypes,omitempty"`
	Socket         string          `json:"socket,omitempty"`
	StateDir       string          `json:"stateDir,omitempty"`

	Timeouts map[string]string `json:"timeouts,omitempty"`
}

// node is a machine with a kubelet's volume plugins: its directories, our
// driver in the plugin directory and Kubernetes' code that calls it.
type node struct {
	t         *testing.T
	root      string // the kubelet's --root-dir
	pluginDir string // the kubelet's --volume-plugin-dir
	work      string // where the test's own files lie
	client    *fake.Clientset
	runner    *runner
	log       *lockedBuffer

	// Of a node with the bridge.
	csi                *csiDriver
	csiProcess, daemon *exec.Cmd

	// What a kubelet has in memory and loses when it restarts.
	stop     context.CancelFunc
	prober   volume.DynamicPluginProber
	mgr      *volume.VolumePluginMgr
	asw      cache.ActualStateOfWorld
	gen      operationexecutor.OperationGenerator
	executor operationexecutor.OperationExecutor
	events   *record.FakeRecorder
}

// newNode returns a node with our driver installed, with attach:true or not.
// The edits change the configuration before it is written.
func newNode(t *testing.T, attach bool, edits ...func(*driverConfig)) *node {
	t.Helper()
	n := emptyNode(t)
	n.installByHand(attach, edits...)
	n.start()
	return n
}

// emptyNode returns a node without driver on which no kubelet runs yet.
func emptyNode(t *testing.T) *node {
	t.Helper()
	need(t, "root")
	dir := scratch(t)
	n := &node{
		t:         t,
		root:      filepath.Join(dir, "kubelet"),
		pluginDir: filepath.Join(dir, "exec"),
		work:      filepath.Join(dir, "work"),
		client:    newClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}),
		runner:    newRunner(),
		log:       captureLog(t),
	}
	for _, d := range []string{filepath.Join(n.root, "pods"), n.pluginDir, n.images(), n.shared()} {
		n.must(os.MkdirAll(d, 0o750))
	}
	t.Cleanup(func() {
		t.Helper()
		n.runner.checkCalls(t)
		n.checkLog()
	})
	return n
}

// captureLog collects what Kubernetes' code logs at -v=4 until t ends.
func captureLog(t *testing.T) *lockedBuffer {
	t.Helper()
	log := &lockedBuffer{}
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "v": "4",
	} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(log)
	t.Cleanup(func() {
		klog.Flush()
		klog.SetOutput(io.Discard)
		if t.Failed() {
			lines := slices.Collect(strings.Lines(log.String()))
			t.Logf("end of the log of Kubernetes' code:\n%s", strings.Join(lines[max(0, len(lines)-25):], ""))
		}
	})
	return log
}

// checkLog fails if the kubelet logged a whole argv, secrets included, as it
// does when a driver exits with another status than 0 (driver-call.go, Run).
func (n *node) checkLog() {
	n.t.Helper()
	klog.Flush()
	for _, c := range n.runner.made() {
		if c.tampered {
			return
		}
	}
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, "driver call failed: executable:") || strings.Contains(line, "driver bug:") {
			n.t.Errorf("the kubelet logged: %s", line)
		}
	}
}

// executable is where the kubelet looks for the driver.
func (n *node) executable() string {
	return filepath.Join(n.pluginDir, driverDir, filepath.Base(driverName))
}

// deadline is an edit of the configuration: how long a command may take.
func deadline(command, duration string) func(*driverConfig) {
	return func(c *driverConfig) { c.Timeouts = map[string]string{command: duration} }
}

// images is where the namespace has its disk images, and shared where
// directories are that can be volumes.
func (n *node) images() string { return filepath.Join(n.work, "images", namespaceA) }
func (n *node) shared() string { return filepath.Join(n.work, "shared") }

// installByHand puts configuration and binary in place before a kubelet runs.
func (n *node) installByHand(attach bool, edits ...func(*driverConfig)) {
	n.t.Helper()
	c := driverConfig{
		APIVersion: "flex2csi.io/v1alpha1",
		Kind:       "FlexDriverConfiguration",
		Backend:    "local",
		Driver:     driverName,
		Capabilities: map[string]bool{
			"attach": attach, "selinuxRelabel": true, "fsGroup": false,
			"supportsMetrics": true, "requiresFSResize": true,
		},
		DirectoryRoots: []string{n.shared()},
		ImageRoots:     []string{filepath.Dir(n.images())},
		DeviceRoots:    []string{"/dev"},
		SourceTypes:    []string{"cifs", "nfs", "ceph", "fuse.fake"},
	}
	for _, edit := range edits {
		edit(&c)
	}
	body, err := json.Marshal(c)
	n.must(err)
	n.must(os.MkdirAll(filepath.Dir(n.executable()), 0o755))
	n.must(os.WriteFile(filepath.Join(filepath.Dir(n.executable()), ".flexdriver.json"), body, 0o600))
	n.must(copyFile(os.Getenv(envBinary), n.executable()))
}

func copyFile(from, to string) error {
	body, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, body, 0o755)
}

// start is the start of a kubelet: it knows nothing but what is on the disk.
func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	n.t.Cleanup(cancel) // before the directory is removed, or it comes back
	n.prober = newProber(ctx, n.pluginDir, n.runner)
	n.mgr = &volume.VolumePluginMgr{}
	n.must(n.mgr.InitPlugins(nil, n.prober, n.newHost()))
	// An old kubelet has not looked for drivers yet. While its first operation does,
	// others find none, fail, and are done again.
	_, _ = n.mgr.FindPluginByName(driverName)
	n.asw = cache.NewActualStateOfWorld(nodeName, n.mgr)
	n.events = record.NewFakeRecorder(1000)
	n.gen = operationexecutor.NewOperationGenerator(n.client, n.mgr, n.events, volumetest.NewBlockVolumePathHandler())
	n.executor = operationexecutor.NewOperationExecutor(n.gen)
}

// restart is what a kubelet that ends and starts again forgets and learns.
func (n *node) restart() {
	n.t.Helper()
	n.stop()
	n.start()
}

const nodeName types.NodeName = "node-1"

// host is the kubelet as a volume plugin sees it. The fake one of Kubernetes
// sees no real mounts and no devices; this one does.
type host struct {
	kubeletHost
	mounter mount.Interface
}

// kubeletHost is what the kubelet is to its plugins. Embedding it keeps this
// code free of methods that differ between releases.
type kubeletHost interface {
	volume.VolumeHost
	volume.KubeletVolumeHost
}

var _ kubeletHost = (*host)(nil)

func (n *node) newHost() *host {
	return &host{
		kubeletHost: volumetest.NewFakeKubeletVolumeHost(n.t, n.root, n.client, nil),
		mounter:     mount.New(""),
	}
}

func (h *host) GetHostUtil() hostutil.HostUtils { return hostutil.NewHostUtil() }
func (h *host) GetSubpather() subpath.Interface { return subpath.New(h.mounter) }
func (h *host) GetNodeName() types.NodeName     { return nodeName }

// GetAttachedVolumesFromNodeStatus reads the node as the real host does.
func (h *host) GetAttachedVolumesFromNodeStatus() (map[v1.UniqueVolumeName]string, error) {
	node, err := h.GetKubeClient().CoreV1().Nodes().Get(context.Background(), string(nodeName), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	attached := map[v1.UniqueVolumeName]string{}
	for _, v := range node.Status.VolumesAttached {
		attached[v.Name] = v.DevicePath
	}
	return attached, nil
}

// must ends the test where something fails that is not under test.
func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}
