package mounter_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A file of a tree, with what the kubelet makes of it for an fsGroup
// (pkg/volume/volume_linux.go, changeFilePermission): the modes below were
// computed by its rule, info.Mode() | mask.
type groupFile struct {
	path string
	kind uint32
	mode uint32
	want uint32
}

func groupTree() []groupFile {
	return []groupFile{
		{"plain", unix.S_IFREG, 0o600, 0o660},
		{"none", unix.S_IFREG, 0o000, 0o660},
		{"script", unix.S_IFREG, 0o755, 0o775},
		{"setuid", unix.S_IFREG, 0o4755, 0o4775},
		{"setgid", unix.S_IFREG, 0o2755, 0o2775},
		{"sticky", unix.S_IFREG, 0o1600, 0o1660},
		{"fifo", unix.S_IFIFO, 0o600, 0o660},
		{"socket", unix.S_IFSOCK, 0o700, 0o760},
		{"link", unix.S_IFLNK, 0o777, 0o777},
		{"dangling", unix.S_IFLNK, 0o777, 0o777},
		{"dir", unix.S_IFDIR, 0o700, 0o2770},
		{"dir/deep", unix.S_IFDIR, 0o1755, 0o3775},
		{"dir/deep/file", unix.S_IFREG, 0o644, 0o664},
		{"dir/-rf ?\n", unix.S_IFREG, 0o644, 0o664},
		{"dir/no\xfftext", unix.S_IFDIR, 0o700, 0o2770},
		{"dir/no\xfftext/f\xff", unix.S_IFREG, 0o600, 0o660},
		{"dir/closed", unix.S_IFDIR, 0o000, 0o2770},
		{"dir/closed/file", unix.S_IFREG, 0o400, 0o660},
	}
}

func makeGroupTree(t *testing.T, dir, outside string) {
	t.Helper()
	for _, f := range groupTree() {
		path := filepath.Join(dir, f.path)
		var err error
		switch {
		case f.path == "link":
			err = os.Symlink(outside, path)
		case f.kind == unix.S_IFLNK:
			err = os.Symlink("nowhere", path)
		case f.kind == unix.S_IFDIR:
			err = firstOf(os.Mkdir(path, 0o700), unix.Chmod(path, f.mode))
		default:
			err = firstOf(unix.Mknod(path, f.kind|0o600, 0), unix.Chmod(path, f.mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestSetGroup(t *testing.T) {
	testenv.Need(t, "root")
	const gid = 4242
	dir := newDir(t)
	outside := filepath.Join(dir, "outside")
	root := filepath.Join(dir, "root")
	mustWrite(t, outside, "")
	mustMkdir(t, root)
	makeGroupTree(t, root, outside)
	setGroup(t.Context(), t, root, gid, nil)

	for _, f := range append(groupTree(), groupFile{".", unix.S_IFDIR, 0, 0o2770}) {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, f.path), &st); err != nil {
			t.Fatal(err)
		}
		if st.Gid != gid || st.Uid != 0 || st.Mode != f.kind|f.want {
			t.Errorf("%s: user %d, group %d, mode %o, want 0, %d, %o", f.path, st.Uid, st.Gid, st.Mode, gid, f.kind|f.want)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(outside, &st); err != nil || st.Gid != 0 || st.Mode&0o7777 != 0o600 {
		t.Errorf("a link was followed: group %d, mode %o, %v", st.Gid, st.Mode, err)
	}

	// The root is as it should be, so the rest is not checked.
	stray := filepath.Join(root, "dir/deep/file")
	if err := os.Chown(stray, -1, 0); err != nil {
		t.Fatal(err)
	}
	setGroup(t.Context(), t, root, gid, nil)
	if err := unix.Stat(stray, &st); err != nil || st.Gid != 0 {
		t.Errorf("the tree was walked again: group %d, %v", st.Gid, err)
	}
	// Another group, or a root that lacks a bit, has all of it done again.
	for _, spoil := range []func() error{
		func() error { return os.Chown(root, -1, gid+1) },
		func() error { return unix.Chmod(root, 0o0770) },
		func() error { return unix.Chmod(root, 0o2750) },
	} {
		if err := firstOf(os.Chown(stray, -1, 0), spoil()); err != nil {
			t.Fatal(err)
		}
		setGroup(t.Context(), t, root, gid, nil)
		if err := unix.Stat(stray, &st); err != nil || st.Gid != gid {
			t.Errorf("not done again: group %d, %v", st.Gid, err)
		}
	}
}

func setGroup(ctx context.Context, t *testing.T, dir string, gid int, want error) {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = (&mounter.Mounter{}).SetGroup(ctx, root, gid)
	if want != nil {
		requireError(t, err, want, fmt.Sprintf("give to group %d", gid))
	} else if err != nil {
		t.Fatal(err)
	}
}

// endsAfter is done when it has been asked a number of times.
type endsAfter struct {
	context.Context
	asked *int
	most  int
}

func (e endsAfter) Err() error {
	*e.asked++
	if *e.asked > e.most {
		return context.DeadlineExceeded
	}
	return nil
}

// A walk that is cut short, wherever, leaves a root that does not match, so
// that the next call does all of it.
func TestSetGroupCutShort(t *testing.T) {
	testenv.Need(t, "root")
	const gid = 4243
	root := newDir(t)
	makeGroupTree(t, root, "/nonexistent")
	total := 0
	for most := 0; ; most++ {
		asked := 0
		f, err := os.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		err = (&mounter.Mounter{}).SetGroup(endsAfter{t.Context(), &asked, most}, f, gid)
		f.Close()
		if err == nil {
			total = most
			break
		}
		var st unix.Stat_t
		if err := unix.Stat(root, &st); err != nil || st.Gid == gid {
			t.Fatalf("after %d of the files the root has group %d (%v)", most, st.Gid, err)
		}
	}
	if total < len(groupTree()) {
		t.Errorf("%d steps for %d files", total, len(groupTree()))
	}
	for _, f := range groupTree() {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(root, f.path), &st); err != nil || st.Gid != gid {
			t.Errorf("%s: group %d, %v", f.path, st.Gid, err)
		}
	}
}

// A filesystem that keeps no groups, and a file that may not be changed, stay as they
// are, with a warning; the rest of the tree gets the group. The mount failed before,
// which the kubelet does not let it do.
func TestSetGroupRefused(t *testing.T) {
	testenv.Need(t, "fuse", "ext4", "loop")
	const gid = 4244
	target := newTarget(t)
	mountFUSE(t, target.Path(), "fuse", "no-owner")
	wantRefused(t, target.Path(), gid)
	mustUnmount(t, target)

	image := newImage(t, 16*testenv.MiB)
	mustRun(t, "mkfs.ext4", "-q", image)
	m := &mounter.Mounter{}
	if err := withImage(t.Context(), m, image, func(l *mounter.Loop) error {
		return m.MountDisk(t.Context(), mounter.Disk{Device: l.Device, FSType: "ext4"}, target, nil)
	}); err != nil {
		t.Fatal(err)
	}
	root := target.Path()
	mustWrite(t, filepath.Join(root, "a"), "")
	mustWrite(t, filepath.Join(root, "b"), "")
	immutable(t, filepath.Join(root, "a"), true)
	wantRefused(t, root, gid)
	for path, want := range map[string]uint32{"a": 0, "b": gid, ".": gid} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root, path), &st); err != nil || st.Gid != want {
			t.Errorf("%s: group %d, %v; want %d", path, st.Gid, err, want)
		}
	}
	immutable(t, filepath.Join(root, "a"), false)
	mustUnmount(t, target)
}

func wantRefused(t *testing.T, dir string, gid int) {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var log strings.Builder
	m := mounter.Mounter{Log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := m.SetGroup(t.Context(), root, gid); err != nil || !strings.Contains(log.String(), "files keep their group") {
		t.Errorf("a filesystem refuses a group: %v, logged %q", err, log.String())
	}
}

func immutable(t *testing.T, path string, on bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := 0
	if on {
		flags = unix.STATX_ATTR_IMMUTABLE // the same bit as FS_IMMUTABLE_FL
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Fatal(err)
	}
}

// The owner is set before the mount can be seen.
func TestSetGroupBeforeMount(t *testing.T) {
	testenv.Need(t, "root", "mount")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		target := newTarget(t)
		err := m.Memory(t.Context(), testenv.MiB, target, []string{"mode=0700"}, func(root *os.File) error {
			return m.SetGroup(t.Context(), root, 4244)
		})
		if err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, target)
		var st unix.Stat_t
		if err := unix.Stat(target.Path(), &st); err != nil || st.Gid != 4244 || st.Mode != unix.S_IFDIR|0o2770 {
			t.Errorf("group %d, mode %o, %v", st.Gid, st.Mode, err)
		}
	})
}
