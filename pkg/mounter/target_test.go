package mounter_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestOpenTarget(t *testing.T) {
	top := newDir(t)
	root := filepath.Join(top, "root")
	mustMkdir(t, filepath.Join(root, "pods/a b,c"))
	mustMkdir(t, filepath.Join(root, "-rf"))
	mustMkdir(t, filepath.Join(top, "root-not"))
	mustWrite(t, filepath.Join(root, "file"), "")
	for link, to := range map[string]string{"root/in": "pods", "root/out": "..", "root/last": "/etc", "link-to-root": "root"} {
		if err := os.Symlink(to, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		root, path string // below top, if relative
		kind       error
		text       string // "" for success
	}{
		"plain":                   {"root", "root/pods/x", nil, ""},
		"odd names":               {"root", "root/pods/a b,c/x=y;$(id)", nil, ""},
		"dashes":                  {"root", "root/-rf/--help", nil, ""},
		"not UTF-8":               {"root", "root/pods/\xff\xfe", nil, ""},
		"directly below the root": {"root", "root/x", nil, ""},
		"root with a slash":       {"root/", "root/pods/x", nil, ""},
		"root is a link":          {"link-to-root", "link-to-root/pods/x", nil, ""},
		"target is a link":        {"root", "root/last", nil, ""}, // mounting there is refused
		"no root":                 {"", "root/in/x", nil, ""},
		"whole tree":              {"/", "root/pods/x", nil, ""},
		"outside":                 {"root", "root-not/x", mounter.ErrUnsafePath, "it is not below "},
		"the root itself":         {"root", "root", mounter.ErrUnsafePath, "it is not below "},
		"above":                   {"root/pods", "root/x", mounter.ErrUnsafePath, "it is not below "},
		"link on the way":         {"root", "root/in/x", mounter.ErrUnsafePath, "a symbolic link is on the way below "},
		"link that leaves":        {"root", "root/out/x", mounter.ErrUnsafePath, "a symbolic link is on the way below "},
		"link at the end":         {"root", "root/pods/../last/x", mounter.ErrUnsafePath, "not clean (it would be "},
		"dots":                    {"root", "root/pods/../../x", mounter.ErrUnsafePath, "not clean"},
		"dot":                     {"root", "root/./x", mounter.ErrUnsafePath, "not clean"},
		"two slashes":             {"root", "root//x", mounter.ErrUnsafePath, "not clean"},
		"slash at the end":        {"root", "root/pods/", mounter.ErrUnsafePath, "not clean"},
		"newline":                 {"root", "root/pods/a\nb", mounter.ErrUnsafePath, "control characters"},
		"NUL":                     {"root", "root/pods/a\x00b", mounter.ErrUnsafePath, "control characters"},
		"delete":                  {"root", "root/pods/a\x7fb", mounter.ErrUnsafePath, "control characters"},
		"parent missing":          {"root", "root/none/x", fs.ErrNotExist, "no such file"},
		"grandparent missing":     {"root", "root/none/at/all/x", fs.ErrNotExist, "no such file"},
		"root missing":            {"none", "none/x", fs.ErrNotExist, "no such file"},
		"parent is a file":        {"root", "root/file/x", unix.ENOTDIR, "not a directory"},
		"grandparent is a file":   {"root", "root/file/x/y", unix.ENOTDIR, "not a directory"},
		"name too long":           {"root", "root/pods/" + string(make255()) + "/x", unix.ENAMETOOLONG, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			path := func(p string) string {
				if p == "" || p[0] == '/' {
					return p
				}
				return top + "/" + p
			}
			target, err := mounter.OpenTarget(path(tt.root), path(tt.path))
			if tt.text != "" {
				requireError(t, err, tt.kind, tt.text, "open mount point")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if target.Path() != path(tt.path) {
				t.Errorf("path is %q, want %q", target.Path(), path(tt.path))
			}
			if err := target.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for _, path := range []string{"", "relative/x", ".", "/", "//", "-o"} {
		t.Run("form "+path, func(t *testing.T) {
			_, err := mounter.OpenTarget("/", path)
			requireError(t, err, mounter.ErrUnsafePath, "open mount point")
		})
	}
}

func make255() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = 'x'
	}
	return b
}

func TestTargetCreate(t *testing.T) {
	dir := newDir(t)
	mustWrite(t, filepath.Join(dir, "file"), "content")
	mustMkdir(t, filepath.Join(dir, "there"))
	if err := os.Symlink("there", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	create := func(name string) (*mounter.Target, error) {
		target := openTarget(t, dir, filepath.Join(dir, name))
		return target, target.Create()
	}

	fresh, err := create("fresh")
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(fresh.Path()); err != nil || st.Mode() != fs.ModeDir|0o750 {
		t.Errorf("made %v (%v), want a directory with mode 0750", st.Mode(), err)
	}
	fresh.Discard()
	if _, err := os.Stat(fresh.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Discard left what Create made: %v", err)
	}

	there, err := create("there")
	if err != nil {
		t.Fatal(err)
	}
	there.Discard()
	if _, err := os.Stat(there.Path()); err != nil {
		t.Errorf("Discard took what was there before: %v", err)
	}

	for _, name := range []string{"file", "link"} {
		_, err := create(name)
		requireError(t, err, mounter.ErrUnsafePath, "create mount point", name, "it exists and is no directory")
	}
	if got := mustRead(t, filepath.Join(dir, "file")); got != "content" {
		t.Errorf("file is %q", got)
	}
}

// The kubelet's directory is a symbolic link on many nodes; the mount table
// shows where it leads.
func TestTargetInfoThroughLink(t *testing.T) {
	testenv.Need(t, "mount")
	var m mounter.Mounter
	dir := newDir(t)
	mustMkdir(t, filepath.Join(dir, "real/mnt"))
	link := filepath.Join(dir, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	target := openTarget(t, link, filepath.Join(link, "mnt"))
	if info, err := target.Info(); info != nil || err != nil {
		t.Fatalf("nothing is mounted, and Info is %v, %v", info, err)
	}
	if err := m.Memory(t.Context(), testenv.MiB, target, []string{"ro"}, nil); err != nil {
		t.Fatal(err)
	}
	info, err := target.Info()
	if err != nil || info == nil || info.FSType != "tmpfs" {
		t.Errorf("Info is %v, %v, want a tmpfs", info, err)
	}
	mustUnmount(t, target)
}

// Of stacked mounts the topmost counts, whatever their order in the table.
func TestTargetInfoStacked(t *testing.T) {
	testenv.Need(t, "mount")
	target := newTarget(t)
	for _, name := range []string{"first", "second", "third"} {
		if err := unix.Mount(name, target.Path(), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"third", "second", "first"} {
		info, err := target.Info()
		if err != nil || info == nil || info.Source != want {
			t.Errorf("Info is %v, %v, want %s", info, err, want)
		}
		if mounted, err := target.Mounted(); !mounted || err != nil {
			t.Errorf("Mounted is %t, %v", mounted, err)
		}
		if err := unix.Unmount(target.Path(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if mounted, err := target.Mounted(); mounted || err != nil {
		t.Errorf("Mounted is %t, %v, of what is not", mounted, err)
	}
}

// What is mounted below a target is found without touching it, and only directly
// below what is no mount point itself.
func TestTargetInfoBelow(t *testing.T) {
	testenv.Need(t, "mount")
	target := newTarget(t)
	expect := func(when string, want ...string) {
		t.Helper()
		if got, err := target.Below(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: below is %v, %v, want %v", when, got, err, want)
		}
	}
	expect("not there")
	a, deep, b := filepath.Join(target.Path(), "a"), filepath.Join(target.Path(), "a b/deep"), filepath.Join(target.Path(), "b")
	for _, dir := range []string{a, deep, b} {
		mustMkdir(t, dir)
	}
	mustWrite(t, filepath.Join(target.Path(), "file"), "")
	expect("nothing is mounted")
	for _, dir := range []string{deep, a, a} {
		if err := unix.Mount("below", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	expect("directly below", a)
	if err := unix.Mount("on", target.Path(), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	expect("it is a mount point")
	for _, dir := range []string{target.Path(), a, a, deep} {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	expect("unmounted")
}
