package mounter

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/testenv"
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

// Each way stands in for the other, and there is no third.
func TestEmptyDirectory(t *testing.T) {
	testenv.Need(t, "mount")
	for program, want := range map[string]int64{"mkfs.ext4": unix.TMPFS_MAGIC, "mount": unix.PROC_SUPER_MAGIC} {
		dir, err := emptyDirectory(program)
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(dir.Fd()), &st); err != nil || st.Type != want {
			t.Errorf("%s works in a filesystem %#x, want %#x (%v)", program, st.Type, want, err)
		}
		dir.Close()
	}
}

func BenchmarkEmptyDirectory(b *testing.B) {
	for _, program := range []string{"mkfs.ext4", "mount"} {
		b.Run(program, func(b *testing.B) {
			for b.Loop() {
				dir, err := emptyDirectory(program)
				if err != nil {
					b.Fatal(err)
				}
				dir.Close()
			}
		})
	}
}
