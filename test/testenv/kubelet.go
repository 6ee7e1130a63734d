package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// KubeletDir is a directory tree as a kubelet keeps it.
type KubeletDir struct {
	// Root is the kubelet's --root-dir.
	Root string
	// PluginDir is the kubelet's --volume-plugin-dir.
	PluginDir string

	t testing.TB
}

// Kubelet lays out an empty kubelet directory and plugin directory in a
// temporary directory that [LeakCheck] watches.
func Kubelet(t testing.TB) *KubeletDir {
	t.Helper()
	top := t.TempDir()
	LeakCheck(t, top)
	k := &KubeletDir{
		Root:      filepath.Join(top, "var/lib/kubelet"),
		PluginDir: filepath.Join(top, "usr/libexec/kubernetes/kubelet-plugins/volume/exec"),
		t:         t,
	}
	k.mkdir(filepath.Join(k.Root, "pods"))
	k.mkdir(filepath.Join(k.Root, "plugins"))
	k.mkdir(k.PluginDir)
	return k
}

// PodVolumeDir creates and returns the directory in which a pod finds a volume
// of driver VENDOR/NAME: the argument of mount and unmount. The kubelet creates
// it before it calls mount (k/k pkg/volume/flexvolume/mounter.go, SetUpAt).
func (k *KubeletDir) PodVolumeDir(podUID, driver, volume string) string {
	k.t.Helper()
	return k.mkdir(filepath.Join(k.Root, "pods", podUID, "volumes", escape(driver), volume))
}

// DeviceMountPath creates and returns the directory for the one mount of a
// volume that its pods share: the argument of mountdevice and unmountdevice
// (k/k pkg/volume/flexvolume/util.go, makeGlobalMountPath).
func (k *KubeletDir) DeviceMountPath(driver, volume string) string {
	k.t.Helper()
	return k.mkdir(filepath.Join(k.Root, "plugins/kubernetes.io/flexvolume", driver, "mounts", volume))
}

// DriverPath returns where the kubelet looks for the program of driver
// VENDOR/NAME. Nothing is created.
func (k *KubeletDir) DriverPath(driver string) string {
	return filepath.Join(k.PluginDir, escape(driver), filepath.Base(driver))
}

func (k *KubeletDir) mkdir(dir string) string {
	k.t.Helper()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		k.t.Fatalf("testenv.Kubelet: %v", err)
	}
	return dir
}

// escape is what the kubelet makes of a plugin's name in paths
// (k8s.io/utils/strings, EscapeQualifiedName).
func escape(driver string) string { return strings.ReplaceAll(driver, "/", "~") }
