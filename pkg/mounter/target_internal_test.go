package mounter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The way of kernels without openat2 comes to the same file, or refuses.
func TestWalkBeneath(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "a/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"a/last": "b", "link": "a", "out": "/"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	dirfd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dirfd)
	for rel, want := range map[string]error{
		".": nil, "a": nil, "a/b": nil, "a/file": nil,
		"none": unix.ENOENT, "a/none/x": unix.ENOENT, "a/file/x": unix.ENOTDIR,
		"link": unix.ELOOP, "link/b": unix.ELOOP, "a/last": unix.ELOOP, "a/last/x": unix.ELOOP, "out/etc": unix.ELOOP,
		"..": unix.EXDEV, "a/../..": unix.EXDEV, "a/..": unix.EXDEV,
	} {
		fd, err := walkBeneath(dirfd, rel)
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", rel, err, want)
		}
		if err != nil {
			continue
		}
		var got, should unix.Stat_t
		if err := firstError(unix.Fstat(fd, &got), unix.Lstat(filepath.Join(root, rel), &should), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		if got.Ino != should.Ino {
			t.Errorf("%s: came to another file", rel)
		}
	}
}
