package kubelet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestWatches: of this process, which is told of in /proc like any other.
func TestWatches(t *testing.T) {
	testenv.Need(t, "mount")
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	watched, other := filepath.Join(dir, "watched"), filepath.Join(dir, "other")
	for _, path := range []string{watched, other} {
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var h kubelet.Host
	want := func(path string, want kubelet.Seen) {
		t.Helper()
		if got := h.Watches(os.Getpid(), path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	want(watched, kubelet.NotWatched)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, watched, unix.IN_CREATE); err != nil {
		t.Fatal(err)
	}
	want(watched, kubelet.Watched)
	want(other, kubelet.NotWatched)
	want(filepath.Join(dir, "none"), kubelet.NotToBeTold)
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	want(watched, kubelet.NotWatched)
	if got := h.Watches(1<<22, watched); got != kubelet.NotToBeTold {
		t.Errorf("of a process that is not there: %v", got)
	}
}

// TestResolve: links are followed as the host follows them, and lead nowhere
// else.
func TestResolve(t *testing.T) {
	root := t.TempDir()
	h := kubelet.Host{Root: root}
	for link, to := range map[string]string{"absolute": "/var/real", "relative": "var/real", "out": "../../../../etc", "var-run": "/absolute/x"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/absolute/a": "/var/real/a", "/relative": "/var/real", "/out": "/etc", "/var-run": "/var/real/x", "/plain/../b/": "/b", "/": "",
	} {
		if got, err := h.Resolve(path); err != nil || got != root+want {
			t.Errorf("%s is %s, %v; want %s", path, got, err, root+want)
		}
	}
	if got := h.Shown("mkdir " + root + "/var: no space; " + root + "x"); got != "mkdir /var: no space; "+root+"x" {
		t.Errorf("shown: %s", got)
	}
	if got, err := (kubelet.Host{}).Resolve(root + "/relative/x"); err != nil || filepath.Base(filepath.Dir(got)) != "real" {
		t.Errorf("on the host itself: %s, %v", got, err)
	}
}

// TestNoCommandLine: a kubelet that has just been started has no flags yet, and is
// not one that goes by its defaults.
func TestNoCommandLine(t *testing.T) {
	h := kubelet.Host{Root: t.TempDir()}
	file := h.ProcFile(7, "cmdline")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if k, err := kubelet.Find(h, 7); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("%+v, %v", k, err)
	}
}
