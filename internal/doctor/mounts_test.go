package doctor_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	msNoExec   = unix.MS_NOEXEC
	msReadOnly = unix.MS_RDONLY
)

// shared makes dir a mount of its own that containers would share.
func (n *node) shared(dir string) {
	n.t.Helper()
	n.mount(dir, dir, "", unix.MS_BIND)
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		n.t.Fatal(err)
	}
}

// mount mounts until the test ends.
func (n *node) mount(source, target, fsType string, flags uintptr) {
	n.t.Helper()
	data := ""
	if fsType == "tmpfs" {
		data = "mode=0755"
	}
	if err := unix.Mount(source, target, fsType, flags, data); err != nil {
		n.t.Fatalf("mount %s at %s: %v", source, target, err)
	}
	n.t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

// unservedFUSE mounts a filesystem that does not answer the kernel: it hangs, and it is
// dead when die is called.
func (n *node) unservedFUSE(dir string) (die func()) {
	n.t.Helper()
	testenv.Need(n.t, "fuse")
	dev, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { dev.Close() })
	if err := unix.Mount("none", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", dev.Fd())); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return func() { dev.Close() }
}

// TestMounts: a dead filesystem and one that does not answer are found among
// those that work, are told apart, and hold up nothing.
func TestMounts(t *testing.T) {
	n := newNode(t)
	n.shared(n.Root)
	const driver = "example.com/disk"
	fine := n.PodVolumeDir("uid-1", driver, "fine")
	n.mount("none", fine, "tmpfs", 0)
	dead := n.PodVolumeDir("uid-2", driver, "dead")
	n.unservedFUSE(dead)()
	hung := n.PodVolumeDir("uid-3", driver, "hung")
	n.unservedFUSE(hung)
	n.o.Timeout = 3 * time.Second
	start := time.Now()
	r := n.run()
	if took := time.Since(start); took > n.o.Timeout+time.Second {
		t.Errorf("it took %v", took)
	}
	want(t, r, n.Root, "mount-corrupted /pods/uid-2/volumes/example.com~disk/dead", "mount-hangs /pods/uid-3/volumes/example.com~disk/hung")
	wantText(t, r, "transport endpoint is not connected", "volume dead of driver example.com/disk, pod uid-2", "3 mounts of volumes below")
}

// TestAskingFails: what was not asked does not count as dead.
func TestAskingFails(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	n.mount("none", n.PodVolumeDir("uid-1", "example.com/disk", "fine"), "tmpfs", 0)
	n.o.AskMounts = []string{"/bin/false"}
	r := n.run()
	want(t, r, "")
	wantText(t, r, "the process that asks them ended after 0 of 1")
}

// TestMountTable: what the table alone tells.
func TestMountTable(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	const driver = "example.com/disk"
	stacked := n.PodVolumeDir("uid-1", driver, "stacked")
	n.mount("none", stacked, "tmpfs", 0)
	n.mount("none", stacked, "tmpfs", 0)
	deleted := n.PodVolumeDir("uid-2", driver, "deleted")
	source := n.path("source")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	n.mount(source, deleted, "", unix.MS_BIND)
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	// The kubelet's own mounts are not checked.
	secret := filepath.Join(n.Root, "pods/uid-1/volumes/kubernetes.io~secret/token")
	if err := os.MkdirAll(secret, 0o755); err != nil {
		t.Fatal(err)
	}
	n.mount("none", secret, "tmpfs", 0)
	n.mount("none", secret, "tmpfs", 0)
	want(t, n.run(), n.Root, "mount-stacked /pods/uid-1/volumes/example.com~disk/stacked", "mount-source-deleted /pods/uid-2/volumes/example.com~disk/deleted")
}

// TestReadOnlyFilesystem: ext4 as an error leaves it (errors=remount-ro).
func TestReadOnlyFilesystem(t *testing.T) {
	testenv.Need(t, "ext4")
	n := newNode(t)
	n.shared(n.Root)
	dir := n.PodVolumeDir("uid-1", "example.com/disk", "damaged")
	n.mountExt4(dir)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	// The superblock is read-only now; the mount itself goes back to rw.
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	want(t, n.run(), n.Root, "filesystem-went-read-only /pods/uid-1/volumes/example.com~disk/damaged")
}

// mountExt4 mounts a new filesystem from a loop device.
func (n *node) mountExt4(dir string) {
	n.t.Helper()
	image := testenv.Image(n.t, 16*testenv.MiB)
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		n.t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		n.t.Fatalf("mount: %v\n%s", err, out)
	}
	n.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// TestPodsDirectoryIsALink: doctor was silent about what it found in no mount table
// (bottlerocket-os/bottlerocket#2218).
func TestPodsDirectoryIsALink(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	elsewhere, pods := t.TempDir(), filepath.Join(n.Root, "pods")
	if err := errors.Join(os.Remove(pods), os.Mkdir(elsewhere+"/p", 0o755), os.Symlink(elsewhere+"/p", pods)); err != nil {
		t.Fatal(err)
	}
	n.mount("private", elsewhere+"/p", "tmpfs", 0)
	if err := unix.Mount("", elsewhere+"/p", "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	mounted := n.PodVolumeDir("uid-1", "example.com/disk", "mounted")
	n.mount("none", mounted, "tmpfs", 0)
	r := n.run()
	want(t, r, elsewhere, "kubelet-dir-not-shared /p")
	wantText(t, r, "1 mount of volumes below "+n.Root)
	if err := unix.Mount("", elsewhere+"/p", "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	want(t, n.run(), elsewhere)
}

// TestPods: data next to a volume, and directories of deleted pods.
func TestPods(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	const driver = "example.com/disk"
	n.write(filepath.Join(n.PodVolumeDir("uid-1", driver, "data"), "precious"), "", 0o644)
	n.PodVolumeDir("uid-1", driver, "empty")
	n.mount("none", n.PodVolumeDir("uid-1", driver, "mounted"), "tmpfs", 0)
	n.write(filepath.Join(n.Root, "pods/uid-1/volumes/kubernetes.io~empty-dir/cache/file"), "", 0o644)
	r := n.run()
	want(t, r, n.Root, "volume-dir-not-empty /pods/uid-1/volumes/example.com~disk/data")
	wantText(t, r, "such as precious", "only the API server knows which pods there are")

	// With the API server: uid-2 is known, uid-3 and uid-4 are not.
	n.mount("none", n.PodVolumeDir("uid-2", driver, "mounted"), "tmpfs", 0)
	n.mount("none", n.PodVolumeDir("uid-3", driver, "mounted"), "tmpfs", 0)
	n.PodVolumeDir("uid-4", driver, "empty")
	n.PodVolumeDir("uid-5", driver, "new")
	old := time.Now().Add(-time.Hour)
	for _, uid := range []string{"uid-3", "uid-4"} {
		if err := os.Chtimes(filepath.Join(n.Root, "pods", uid), old, old); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster()
	c.pods = []string{"uid-1", "uid-2"}
	n.o.Cluster, n.o.NodeName = c, "node-1"
	want(t, n.run(), n.Root, "volume-dir-not-empty /pods/uid-1/volumes/example.com~disk/data",
		"mount-without-pod /pods/uid-3/volumes/example.com~disk/mounted", "pod-orphaned /pods/uid-4")
}
