package mounter

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// Only an empty directory of the kernel is taken in place of one of our own.
func TestEmptyOfKernel(t *testing.T) {
	dir, err := emptyOfKernel(emptyProc)
	if err != nil {
		t.Fatal(err)
	}
	dir.Close()
	for _, path := range []string{"/", t.TempDir(), "/proc", "/proc/self/cwd", "/proc/none", "/proc/version"} {
		if dir, err := emptyOfKernel(path); err == nil {
			dir.Close()
			t.Errorf("%s is taken", path)
		}
	}
}

// A program works in the kernel's empty directory, and in a detached one only without it.
func TestEmptyDirectory(t *testing.T) {
	testenv.Need(t, "mount")
	for name, test := range map[string]struct {
		open func() (*os.File, error)
		want int64
	}{
		"first":  {func() (*os.File, error) { return emptyDirectory("mount") }, unix.PROC_SUPER_MAGIC},
		"second": {detachedDirectory, unix.TMPFS_MAGIC},
	} {
		dir, err := test.open()
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil || st.Type != test.want {
			t.Errorf("the %s is in a filesystem %#x, want %#x (%v)", name, st.Type, test.want, err)
		}
		dir.Close()
	}
}

func BenchmarkEmptyDirectory(b *testing.B) {
	for b.Loop() {
		dir, err := emptyDirectory("mount")
		if err != nil {
			b.Fatal(err)
		}
		dir.Close()
	}
}
