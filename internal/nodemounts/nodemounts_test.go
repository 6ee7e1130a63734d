package nodemounts_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestHealthySilent: what did not answer for two seconds was dead, and so mounts
// of an NFS server that failed over were unmounted under their pods.
func TestHealthySilent(t *testing.T) {
	testenv.Need(t, "fuse")
	for name, silent := range map[string]bool{"silent": true, "dead": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // waits for an answer
			dir := t.TempDir()
			fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("server", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
			if silent {
				t.Cleanup(func() { unix.Close(fd) })
			} else {
				unix.Close(fd)
			}
			m := nodemounts.Mounts{KubeletDir: dir}
			for range 2 { // the second joins the first
				if err := m.Healthy(dir); err == nil || errors.Is(err, os.ErrDeadlineExceeded) != silent {
					t.Errorf("Healthy: %v", err)
				}
			}
		})
	}
}

// TestSize: of a filesystem on a block device, of one without, and of nothing.
func TestSize(t *testing.T) {
	testenv.Need(t, "ext4")
	dir := t.TempDir()
	m := nodemounts.Mounts{KubeletDir: dir}
	if _, _, err := m.Size(filepath.Join(dir, "none")); err == nil {
		t.Error("of nothing there is a size")
	}
	mount := func(name, source, fsType, data string) string {
		at := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(at, 0o700), unix.Mount(source, at, fsType, 0, data)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, 0); err != nil {
				t.Error(err)
			}
		})
		return at
	}
	fs, device, err := m.Size(mount("memory", "memory", "tmpfs", "size=8m"))
	if fs != 8<<20 || device != 0 || err != nil {
		t.Errorf("memory: %d bytes on a device of %d, %v", fs, device, err)
	}
	const size = 64 << 20
	fs, device, err = m.Size(mount("disk", loopDisk(t, testenv.Image(t, size), "mkfs.ext4", "-q"), "ext4", ""))
	if fs < size-1<<20 || fs > size || device != size || err != nil {
		t.Errorf("disk: %d bytes on a device of %d, %v", fs, device, err)
	}
}

// TestSizeGrows: to statfs a filesystem has up to a tenth less than it takes of its device,
// so a device that had grown by less than that stood for its filesystem (N6).
func TestSizeGrows(t *testing.T) {
	for fsType, grow := range map[string][]string{
		"ext4": nil, "xfs": {"xfs_growfs"}, "btrfs": {"btrfs", "filesystem", "resize", "max"},
	} {
		t.Run(fsType, func(t *testing.T) {
			testenv.Need(t, fsType)
			const small, large, exact = 512 << 20, 540 << 20, 4 << 20
			image := testenv.Image(t, small)
			disk, at := loopDisk(t, image, "mkfs."+fsType, "-q"), t.TempDir()
			if err := unix.Mount(disk, at, fsType, 0, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(at, 0) })
			m := nodemounts.Mounts{KubeletDir: filepath.Dir(at)}
			want := func(what string, size, deviceSize int64) {
				t.Helper()
				if fs, device, err := m.Size(at); fs < size-exact || fs > size || device != deviceSize || err != nil {
					t.Errorf("%s: %d bytes on a device of %d, %v; want %d on %d", what, fs, device, err, size, deviceSize)
				}
			}
			run := func(args ...string) {
				t.Helper()
				if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			want("made", small, small)
			if err := os.Truncate(image, large); err != nil {
				t.Fatal(err)
			}
			run("losetup", "--set-capacity", disk)
			want("the device has grown", small, large)
			if grow != nil {
				run(append(grow, at)...)
			} else if err := unix.Unmount(at, 0); err != nil { // mounted it would take CAP_SYS_RESOURCE
				t.Fatal(err)
			} else {
				run("resize2fs", "-f", disk)
				if err := unix.Mount(disk, at, fsType, 0, ""); err != nil {
					t.Fatal(err)
				}
			}
			want("the filesystem has grown", large, large)
		})
	}
}

// loopDisk makes a block device of an image, with a filesystem.
func loopDisk(t *testing.T, image string, mkfs ...string) string {
	if out, err := exec.CommandContext(t.Context(), mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.Background(), "losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return device
}

// TestPodsDirectoryIsALink: no volume of the bridge could be mounted where pods is a link
// (bottlerocket-os/bottlerocket#2218).
func TestPodsDirectoryIsALink(t *testing.T) {
	testenv.Need(t, "mount")
	dir := t.TempDir()
	target := filepath.Join(dir, "pods/uid/volumes/a~b/pv")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "elsewhere/uid/volumes/a~b"), 0o700), os.Symlink("elsewhere", filepath.Join(dir, "pods"))); err != nil {
		t.Fatal(err)
	}
	m := nodemounts.Mounts{KubeletDir: dir}
	if err := m.Bind(t.Context(), t.TempDir(), target, false); err != nil {
		t.Fatal(err)
	}
	mounted, err := m.Mounted(target)
	if err := errors.Join(err, m.Unmount(t.Context(), target)); err != nil || !mounted {
		t.Errorf("mounted: %t, %v", mounted, err)
	}
}
