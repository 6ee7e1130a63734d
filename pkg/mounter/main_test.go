package mounter_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(envOldKernel) != "" {
		forgetNewCalls()
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // for mount-utils
	testenv.Main(m)
}

// eachWay runs f with both ways of mounting.
func eachWay(t *testing.T, f func(t *testing.T, m *mounter.Mounter)) {
	t.Helper()
	t.Run("detached", func(t *testing.T) { f(t, &mounter.Mounter{}) })
	t.Run("classic", func(t *testing.T) { f(t, &mounter.Mounter{Classic: true}) })
}

// newDir returns an empty directory. The one above, which all those of a test
// share, is watched for leaks from the first on: looking for them takes longer
// than most of what is tested.
func newDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	top := filepath.Dir(dir)
	mark, err := os.OpenFile(filepath.Join(top, ".watched"), os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return dir
	}
	if err != nil {
		t.Fatal(err)
	}
	mark.Close()
	testenv.LeakCheck(t, top)
	return dir
}

// newImage returns the path of a sparse file, alone in its directory.
func newImage(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(newDir(t), "disk.img")
	mustWrite(t, path, "")
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// newTarget returns a mount point. What is mounted there when the test ends is
// a leak.
func newTarget(t *testing.T) *mounter.Target {
	t.Helper()
	dir := newDir(t)
	path := filepath.Join(dir, "mnt")
	mustMkdir(t, path)
	return openTarget(t, dir, path)
}

func openTarget(t *testing.T, root, path string) *mounter.Target {
	t.Helper()
	target, err := mounter.OpenTarget(root, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	return target
}

func mustMkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o750); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mustRun runs a program, also of the sbin directories, and returns its output.
func mustRun(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	if cmd.Err != nil {
		cmd = exec.CommandContext(t.Context(), "/usr/sbin/"+name, args...)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func mustUnmount(t *testing.T, target *mounter.Target) {
	t.Helper()
	var m mounter.Mounter
	// Not t.Context, which is over when cleanups run.
	if err := m.Unmount(context.Background(), target); err != nil {
		t.Fatal(err)
	}
	requireMounts(t, target.Path(), 0)
}

// requireMounts checks how many mounts are stacked at path.
func requireMounts(t *testing.T, path string, want int) {
	t.Helper()
	if got := len(mountsAt(t, path)); got != want {
		t.Errorf("%d mounts at %s, want %d", got, path, want)
	}
}

// mountsAt reads the mount table without any code of the package.
func mountsAt(t *testing.T, path string) []*mountinfo.Info {
	t.Helper()
	real, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	real = filepath.Join(real, filepath.Base(path))
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (bool, bool) { return i.Mountpoint != real, false })
	if err != nil {
		t.Fatal(err)
	}
	return infos
}

// optionsAt returns the options of the mount at path, then those of its
// filesystem.
func optionsAt(t *testing.T, path string) (mount, super []string) {
	t.Helper()
	infos := mountsAt(t, path)
	if len(infos) != 1 {
		t.Fatalf("%d mounts at %s, want one", len(infos), path)
	}
	return strings.Split(infos[0].Options, ","), strings.Split(infos[0].VFSOptions, ",")
}

func requireWritable(t *testing.T, dir string, want bool) {
	t.Helper()
	f, err := os.CreateTemp(dir, "probe")
	if err == nil {
		f.Close()
		os.Remove(f.Name())
	}
	if want && err != nil {
		t.Errorf("cannot write: %v", err)
	}
	if !want && !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to a read-only mount gives %v, want EROFS", err)
	}
}

// requireError checks that err says all of it, and nothing of what begins with
// an exclamation mark.
func requireError(t *testing.T, err error, kind error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	t.Logf("error: %v", err)
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("error is not %v: %v", kind, err)
	}
	for _, text := range texts {
		text, not := strings.CutPrefix(text, "!")
		if strings.Contains(err.Error(), text) == not {
			t.Errorf("error %q: contains %q is %t", err, text, not)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") {
		t.Errorf("error has several lines: %q", err)
	}
}

// A disk is an image behind a loop device.
type disk struct {
	path   string
	device string
	loop   *mounter.Loop
}

func newDisk(t *testing.T, size int64) disk {
	t.Helper()
	return attachDisk(t, newImage(t, size))
}

func attachDisk(t *testing.T, path string) disk {
	t.Helper()
	testenv.Need(t, "loop")
	loop, err := attach(t.Context(), &mounter.Mounter{}, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Close() })
	return disk{path: path, device: loop.Device, loop: loop}
}

// attach opens an image and attaches it under the lock that AttachImage wants.
func attach(ctx context.Context, m *mounter.Mounter, path string) (*mounter.Loop, error) {
	image, err := m.OpenImage(ctx, path, 0, anywhere())
	if err != nil {
		return nil, err
	}
	defer image.Close()
	lock, err := mounter.LockName(ctx, filepath.Join(filepath.Dir(path), ".lock"), image.Key())
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	return m.AttachImage(ctx, image)
}

// formatted returns a disk with a filesystem, of the least size that mkfs takes.
func formatted(t *testing.T, fsType string) disk {
	t.Helper()
	testenv.Need(t, fsType)
	d := newDisk(t, leastSize(fsType))
	mustRun(t, "mkfs."+fsType, d.device)
	return d
}

// setReadOnly write-protects a disk until the test ends: the flag outlives the
// image of a loop device.
func (d disk) setReadOnly(t *testing.T) {
	t.Helper()
	mustRun(t, "blockdev", "--setro", d.device)
	t.Cleanup(func() {
		f, err := os.Open(d.device)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 0)
			f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
}

func leastSize(fsType string) int64 {
	switch fsType {
	case "xfs":
		return 300 * testenv.MiB
	case "btrfs":
		return 128 * testenv.MiB
	}
	return 16 * testenv.MiB
}

// hash is of a file's or device's whole content.
func hash(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// loopsOf returns the loop devices that an image is attached to.
func loopsOf(t *testing.T, image string) []string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var devices []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.TrimSuffix(string(b), "\n") == image {
			devices = append(devices, "/dev/"+strings.Split(f, "/")[3])
		}
	}
	slices.Sort(devices)
	return devices
}

// eventually waits for what the kernel does in its own time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(10 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not after 10 s: %s", what)
		}
	}
}

func anywhere() mounter.Roots { return mounter.Roots{Below: []string{mounter.Anywhere}} }
