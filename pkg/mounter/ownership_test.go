package mounter_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flex2csi/flex2csi/internal/testenv"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A tree with all that a pod may have put into it: modes that shut the group
// out, names that are no text, links that lead out of the volume, a FIFO.
func TestSetGroup(t *testing.T) {
	testenv.Need(t, "root")
	outside := filepath.Join(t.TempDir(), "outside")
	root := filepath.Join(t.TempDir(), "volume")
	for _, dir := range []string{root, filepath.Join(root, "a"), filepath.Join(root, "a/b"), filepath.Join(root, "no\xfftext")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{outside, filepath.Join(root, "f"), filepath.Join(root, "a/b/f"), filepath.Join(root, "no\xfftext/f\xff")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(root, "a/link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	setGroup(t, root, 4711)

	for path, want := range map[string]os.FileMode{
		"": 0o2770 | os.ModeDir, "a": 0o2770 | os.ModeDir, "a/b": 0o2770 | os.ModeDir, "no\xfftext": 0o2770 | os.ModeDir,
		"f": 0o660, "a/b/f": 0o660, "no\xfftext/f\xff": 0o660, "fifo": 0o600 | os.ModeNamedPipe,
	} {
		mode, gid := owner(t, filepath.Join(root, path))
		if mode.Type() != want.Type() || mode.Perm() != want&0o777 || (mode&os.ModeSetgid != 0) != mode.IsDir() || gid != 4711 {
			t.Errorf("%q has mode %v and group %d", path, mode, gid)
		}
	}
	if _, gid := owner(t, filepath.Join(root, "a/link")); gid != 4711 {
		t.Errorf("the link has group %d", gid)
	}
	if mode, gid := owner(t, outside); mode != 0o600 || gid == 4711 {
		t.Errorf("what a link leads to was changed: mode %v, group %d", mode, gid)
	}
}

// The root says for the whole tree that it is done.
func TestSetGroupSkipsWhatIsDone(t *testing.T) {
	testenv.Need(t, "root")
	root := t.TempDir()
	setGroup(t, root, 4711)
	file := filepath.Join(root, "later")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	setGroup(t, root, 4711)
	if mode, _ := owner(t, file); mode != 0o600 {
		t.Errorf("a tree that was done already was walked again: mode %v", mode)
	}
}

func TestSetGroupEndsWithContext(t *testing.T) {
	testenv.Need(t, "root")
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var m mounter.Mounter
	if err := m.SetGroup(ctx, dir, 4711); err == nil {
		t.Error("the walk went on after its context had ended")
	}
	if _, gid := owner(t, root); gid == 4711 {
		t.Error("a walk that was cut short looks done")
	}
}

func setGroup(t *testing.T, root string, gid int) {
	t.Helper()
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	var m mounter.Mounter
	if err := m.SetGroup(t.Context(), dir, gid); err != nil {
		t.Fatal(err)
	}
}

func owner(t *testing.T, path string) (os.FileMode, int) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no stat_t")
	}
	return info.Mode(), int(st.Gid)
}
