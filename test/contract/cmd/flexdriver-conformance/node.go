package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/mount-utils"
)

const (
	namespace                = "default"
	nodeName  types.NodeName = "node-1"
)

// node is a machine with a kubelet's FlexVolume plugin and the driver.
type node struct {
	dir, root, executable string
	driver                string // vendor/name
	volume                *volumeFile
	client                *fake.Clientset
	runner                *runner
	log                   *lockedBuffer
	stop                  context.CancelFunc
	mgr                   *volume.VolumePluginMgr
}

// newNode installs the driver in a plugin directory of its own.
func newNode(path string, v *volumeFile, deadline time.Duration) (*node, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("find the driver: %w", err)
	} else if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		return nil, fmt.Errorf("find the driver: %s is no program that can be executed", path)
	}
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, root: filepath.Join(dir, "kubelet"), volume: v, runner: &runner{deadline: deadline, dir: dir}, log: &lockedBuffer{}}
	n.client = fakeClientset()
	if err := n.install(path); err != nil {
		n.close()
		return nil, fmt.Errorf("install the driver in %s: %w", dir, err)
	}
	n.captureLog()
	return n, nil
}

// install mounts a driver's directory VENDOR~NAME, so that what is next to the driver is
// there, too; a program that lies elsewhere is copied, as conformance/NAME.
func (n *node) install(path string) error {
	vendor, name := "conformance", filepath.Base(path)
	from := filepath.Dir(path)
	v, base, installed := strings.Cut(filepath.Base(from), "~")
	if installed = installed && base == name; installed {
		vendor = v
	}
	n.driver = vendor + "/" + name
	to := filepath.Join(n.pluginDir(), vendor+"~"+name)
	n.executable = filepath.Join(to, name)
	for _, dir := range []string{to, filepath.Join(n.root, "pods")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if installed {
		return unix.Mount(from, to, "", unix.MS_BIND, "")
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(n.executable, data, 0o755)
	}
	return err
}

func (n *node) pluginDir() string { return filepath.Join(n.dir, "exec") }

// close ends what the private mount namespace does not end: the directory.
func (n *node) close() {
	if n.stop != nil {
		n.stop()
	}
	for _, m := range mountsBelow(n.dir) {
		_ = unix.Unmount(m, unix.MNT_DETACH)
	}
	if len(mountsBelow(n.dir)) == 0 { // else the removal would reach a volume's files
		_ = os.RemoveAll(n.dir)
	}
}

// captureLog collects what the kubelet would log.
func (n *node) captureLog() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "v": "4"} {
		_ = flags.Set(name, value) // the names are those of klog
	}
	klog.SetOutput(n.log)
}

// start starts Kubernetes' code, which runs init.
func (n *node) start() (volume.VolumePlugin, error) {
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	n.mgr = &volume.VolumePluginMgr{}
	if err := n.mgr.InitPlugins(nil, newProber(ctx, n.pluginDir(), n.runner), &host{node: n, mounter: mount.New("")}); err != nil {
		return nil, err
	}
	return n.mgr.FindPluginByName(n.driver)
}

// host is the kubelet as FlexVolume's code sees it; it calls nothing else.
type host struct {
	kubeletHost
	node    *node
	mounter mount.Interface
}

type kubeletHost interface {
	volume.VolumeHost
	volume.KubeletVolumeHost
}

func (h *host) GetPluginDir(name string) string    { return filepath.Join(h.node.root, "plugins", name) }
func (h *host) GetPodsDir() string                 { return filepath.Join(h.node.root, "pods") }
func (h *host) GetKubeClient() clientset.Interface { return h.node.client }
func (h *host) GetNodeName() types.NodeName        { return nodeName }
func (h *host) GetPodVolumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(h.node.root, "pods", string(uid), "volumes", plugin, name)
}

// spec returns a PersistentVolume with these options, and the volume's Secret.
func (n *node) spec(name string, options map[string]string, readOnly bool) *volume.Spec {
	source := &v1.FlexPersistentVolumeSource{Driver: n.driver, FSType: n.volume.FSType, Options: options, ReadOnly: readOnly}
	if len(n.volume.Secrets) > 0 {
		source.SecretRef = &v1.SecretReference{Namespace: namespace, Name: "secret"}
		secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "secret"}, Type: v1.SecretType(n.driver), Data: map[string][]byte{}}
		for key, value := range n.volume.Secrets {
			secret.Data[key] = []byte(value)
		}
		_ = n.client.Tracker().Add(secret) // the same object again is what is wanted
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.FlexVolume = source
	return volume.NewSpecFromPersistentVolume(pv, readOnly)
}

func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{ServiceAccountName: "default"},
	}
}

// mountsBelow returns the mount points at and below dir, the latest first.
func mountsBelow(dir string) []string {
	infos, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		panic(fmt.Sprintf("cannot see what is mounted: %v", err)) // no check is worth anything
	}
	var found []string
	for _, info := range infos {
		if info.MountPoint == dir || strings.HasPrefix(info.MountPoint, dir+"/") {
			found = append([]string{info.MountPoint}, found...)
		}
	}
	return found
}

// lockedBuffer collects the log of Kubernetes' code.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	klog.Flush()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
