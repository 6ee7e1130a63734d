package mounter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// losetup attaches an image by hand, and detaches it when the test ends unless
// that has happened by then.
func losetup(t *testing.T, image string, args ...string) (device string) {
	t.Helper()
	device = strings.TrimSpace(mustRun(t, "losetup", append(args, "--find", "--show", image)...))
	t.Cleanup(func() {
		if len(loopsOf(t, image)) > 0 {
			_ = exec.Command("/usr/sbin/losetup", "-d", device).Run() // LeakCheck tells
		}
	})
	return device
}

func requireLoops(t *testing.T, image string, want ...string) {
	t.Helper()
	if got := loopsOf(t, image); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s is attached to %v, want %v", image, got, want)
	}
}

func TestLoopDetachesItself(t *testing.T) {
	testenv.Need(t, "ext4")
	var m mounter.Mounter
	path, target := newImage(t, leastSize("ext4")), newTarget(t)
	loop, err := attach(t.Context(), &m, path)
	if err != nil {
		t.Fatal(err)
	}
	requireLoops(t, path, loop.Device)
	if mounter.BackingFile(loop.Device) != path {
		t.Errorf("BackingFile is %q", mounter.BackingFile(loop.Device))
	}
	if size, err := mounter.DeviceSize(loop.Device); size != leastSize("ext4") || err != nil {
		t.Errorf("the device has %d bytes, %v", size, err)
	}
	if err := m.MountDisk(t.Context(), mounter.Disk{Device: loop.Device}, target, nil); err != nil {
		t.Fatal(err)
	}
	loop.Close()
	requireLoops(t, path, loop.Device) // the mount keeps it
	mustUnmount(t, target)
	if err := mounter.WaitDetached(t.Context(), loop.Device, path); err != nil {
		t.Error(err)
	}
	requireLoops(t, path)
}

// A loop device was attached by hand, and would have to be detached by hand.
func TestLoopAdopted(t *testing.T) {
	testenv.Need(t, "loop")
	var m mounter.Mounter
	path := newImage(t, testenv.MiB)
	device := losetup(t, path)
	loop, err := attach(t.Context(), &m, path)
	if err != nil {
		t.Fatal(err)
	}
	if loop.Device != device {
		t.Errorf("attached to %s in addition to %s", loop.Device, device)
	}
	requireLoops(t, path, device)
	loop.Close()
	eventually(t, "an adopted device detaches itself", func() bool { return len(loopsOf(t, path)) == 0 })
}

func TestLoopUnfit(t *testing.T) {
	testenv.Need(t, "loop")
	for name, tt := range map[string]struct {
		args []string
		text string
	}{
		"offset":     {[]string{"--offset", "4096"}, "shows only a part of it (offset 4096, size limit 0); detach it with losetup -d /dev/loop"},
		"size limit": {[]string{"--sizelimit", "8192"}, "shows only a part of it (offset 0, size limit 8192); detach it with losetup -d /dev/loop"},
		"read-only":  {[]string{"--read-only"}, "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			path := newImage(t, testenv.MiB)
			device := losetup(t, path, tt.args...)
			_, err := attach(t.Context(), &mounter.Mounter{}, path)
			requireError(t, err, mounter.ErrBusy, "attach image "+path, device, tt.text)
			requireLoops(t, path, device) // and it is still there
			mustRun(t, "losetup", "-d", device)
			eventually(t, "losetup -d", func() bool { return len(loopsOf(t, path)) == 0 })
			attachDisk(t, path)
		})
	}
}

// However an image is called, it is never behind two devices.
func TestLoopByOtherName(t *testing.T) {
	testenv.Need(t, "loop")
	d := newDisk(t, testenv.MiB)
	hard, soft := d.path+".hard", d.path+".soft"
	if err := firstOf(os.Link(d.path, hard), os.Symlink("disk.img", soft)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hard, soft} {
		if again := attachDisk(t, name); again.device != d.device {
			t.Errorf("%s is attached to %s, and %s to %s", name, again.device, d.path, d.device)
		}
	}
	requireLoops(t, d.path, d.device)
	requireLoops(t, hard)
}

func TestLoopConcurrently(t *testing.T) {
	testenv.Need(t, "ext4")
	var m mounter.Mounter
	path := newImage(t, leastSize("ext4"))
	const n = 16
	targets := make([]*mounter.Target, n)
	for i := range targets {
		targets[i] = newTarget(t)
	}
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			err := withImage(t.Context(), &m, path, func(loop *mounter.Loop) error {
				return m.MountDisk(t.Context(), mounter.Disk{Device: loop.Device, FSType: "ext4"}, targets[i], nil)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if got := loopsOf(t, path); len(got) != 1 {
		t.Errorf("attached to %v, want one device", got)
	}
	for i, target := range targets {
		mustWrite(t, filepath.Join(target.Path(), fmt.Sprint(i)), "")
	}
	for _, target := range targets {
		if files, err := os.ReadDir(target.Path()); err != nil || len(files) != n+1 { // lost+found
			t.Errorf("%d files, %v", len(files), err)
		}
		mustUnmount(t, target)
	}
	if err := mounter.WaitDetached(t.Context(), "/dev/loop0", path); err != nil {
		t.Error(err)
	}
}

// withImage does what a driver does: the lock is held until the disk is mounted.
func withImage(ctx context.Context, m *mounter.Mounter, path string, do func(*mounter.Loop) error) error {
	image, err := m.OpenImage(ctx, path, 0, anywhere())
	if err != nil {
		return err
	}
	defer image.Close()
	lock, err := mounter.LockName(ctx, filepath.Join(filepath.Dir(path), ".lock"), image.Key())
	if err != nil {
		return err
	}
	defer lock.Close()
	loop, err := m.AttachImage(ctx, image)
	if err != nil {
		return err
	}
	defer loop.Close()
	return do(loop)
}

// More than the eight loop devices that there are from the start.
func TestLoopMany(t *testing.T) {
	testenv.Need(t, "loop")
	seen := map[string]bool{}
	for range 12 {
		d := newDisk(t, testenv.MiB)
		if seen[d.device] {
			t.Errorf("%s twice", d.device)
		}
		seen[d.device] = true
		writeAt(t, d.device, 0, []byte(d.device))
	}
}

// Images on memory, and other filesystems without direct I/O.
func TestLoopOnTmpfs(t *testing.T) {
	testenv.Need(t, "ext4")
	var m mounter.Mounter
	memory, target := newTarget(t), newTarget(t)
	if err := m.Memory(t.Context(), 64*testenv.MiB, memory, nil, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(memory.Path(), "disk.img")
	image, err := m.OpenImage(t.Context(), path, leastSize("ext4"), anywhere())
	if err != nil {
		t.Fatal(err)
	}
	image.Close()
	err = withImage(t.Context(), &m, path, func(loop *mounter.Loop) error {
		return m.MountDisk(t.Context(), mounter.Disk{Device: loop.Device}, target, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(target.Path(), "file"), "content")
	mustUnmount(t, target)
	eventually(t, "detached", func() bool { return len(loopsOf(t, path)) == 0 })
	mustUnmount(t, memory)
}

// A lock on the image, as another node's kernel has it where storage is
// shared: a clear refusal, and nothing is attached. The other node here is a
// process of its own.
func TestLoopLease(t *testing.T) {
	testenv.Need(t, "loop", "prog:flock")
	for name, shared := range map[string]bool{"exclusive": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // waits for the lock
			path := newImage(t, testenv.MiB)
			args := []string{"--exclusive", path, "-c", "echo locked; exec cat"}
			if shared {
				args[0] = "--shared"
			}
			cmd := exec.CommandContext(t.Context(), "flock", args...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := stdout.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
			_, err = attach(t.Context(), &mounter.Mounter{}, path)
			requireError(t, err, mounter.ErrBusy, "attach image "+path, "it is locked", "another node")
			requireLoops(t, path)
			stdin.Close()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			attachDisk(t, path)
		})
	}
}

// While it is attached, no other process can lock it; the lock ends with the device.
func TestLoopKeepsLease(t *testing.T) {
	testenv.Need(t, "loop")
	d := newDisk(t, testenv.MiB)
	f, err := os.Open(d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, how := range []int{unix.LOCK_EX, unix.LOCK_SH} {
		if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != unix.EWOULDBLOCK {
			t.Errorf("flock of an attached image gives %v", err)
		}
	}
	d.loop.Close()
	eventually(t, "the lock is free", func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
}

// An image that cannot be written to is attached read-only, and shared so.
func TestLoopReadOnlyImage(t *testing.T) {
	testenv.Need(t, "ext4")
	var m mounter.Mounter
	d, dir, target := formatted(t, "ext4"), newTarget(t), newTarget(t)
	d.loop.Close()
	eventually(t, "detached", func() bool { return len(loopsOf(t, d.path)) == 0 })
	if err := m.Bind(t.Context(), filepath.Dir(d.path), anywhere(), dir, []string{"ro"}, nil); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir.Path(), "disk.img")
	before := hash(t, d.path)
	image, err := m.OpenImage(t.Context(), path, 0, anywhere())
	if err != nil {
		t.Fatal(err)
	}
	if !image.ReadOnly {
		t.Error("the image is said to be writable")
	}
	requireError(t, m.Grow(t.Context(), image, 1<<30), mounter.ErrReadOnly, "grow image "+path, "cannot be written to")
	loop, err := m.AttachImage(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	image.Close()
	if !loop.ReadOnly {
		t.Error("the device is said to be writable")
	}
	disk := mounter.Disk{Device: loop.Device}
	requireError(t, m.MountDisk(t.Context(), disk, target, nil), mounter.ErrReadOnly)
	disk.ReadOnly = true
	if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
		t.Fatal(err)
	}
	requireWritable(t, target.Path(), false)
	mustUnmount(t, target)
	loop.Close()
	if err := mounter.WaitDetached(t.Context(), loop.Device, path); err != nil {
		t.Error(err)
	}
	eventually(t, "the directory is free", func() bool { return m.Unmount(t.Context(), dir) == nil })
	if hash(t, d.path) != before {
		t.Error("the image was changed")
	}
}

// The flag that blockdev --setro sets stays when the image goes, and made the
// next volume that got the device read-only.
func TestLoopForgetsWriteProtection(t *testing.T) {
	testenv.Need(t, "loop")
	d := newDisk(t, testenv.MiB)
	mustRun(t, "blockdev", "--setro", d.device)
	d.loop.Close()
	eventually(t, "detached", func() bool { return len(loopsOf(t, d.path)) == 0 })
	for range 20 { // until it is the same device, as a rule at once
		next := newDisk(t, testenv.MiB)
		if got := strings.TrimSpace(mustRun(t, "blockdev", "--getro", next.device)); got != "0" {
			t.Errorf("%s is read-only", next.device)
		}
		if next.device == d.device {
			return
		}
	}
	mustRun(t, "blockdev", "--setrw", d.device) // it belongs to another test now
}

// A device node that is missing, as in a container in which /dev is no devtmpfs,
// must not hide that the image is attached.
func TestLoopWithoutNode(t *testing.T) {
	testenv.Need(t, "loop")
	d := newDisk(t, testenv.MiB)
	if err := unix.Mount("test", "/dev", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount("/dev", unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}()
	if err := unix.Mknod("/dev/loop-control", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))); err != nil {
		t.Fatal(err)
	}
	var m mounter.Mounter
	loop, err := attach(t.Context(), &m, d.path)
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	if loop.Device != d.device {
		t.Errorf("attached to %s in addition to %s", loop.Device, d.device)
	}
	other, err := attach(t.Context(), &m, newImage(t, testenv.MiB))
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
}

func TestLoopNoDevices(t *testing.T) {
	testenv.Need(t, "loop")
	path := newImage(t, testenv.MiB)
	if err := unix.Mount("test", "/dev", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount("/dev", unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}()
	_, err := attach(t.Context(), &mounter.Mounter{}, path)
	requireError(t, err, os.ErrNotExist, "attach image "+path, "no loop devices on this node", "module loop")
}

// An image that was removed, or replaced, while it waited for its turn.
func TestLoopReplacedImage(t *testing.T) {
	testenv.Need(t, "loop")
	var m mounter.Mounter
	path := newImage(t, testenv.MiB)
	image, err := m.OpenImage(t.Context(), path, 0, anywhere())
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	_, err = m.AttachImage(t.Context(), image)
	requireError(t, err, mounter.ErrBusy, path, "removed or replaced")
	mustWrite(t, path, "another")
	_, err = m.AttachImage(t.Context(), image)
	requireError(t, err, mounter.ErrBusy, path, "removed or replaced")
}
