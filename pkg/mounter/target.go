package mounter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Target is the directory that a mount goes to or comes off. It is reached
// through an open file descriptor of its parent, so that a process
// cannot replace a directory by a symbolic link after the check, and so that a dead
// or hung mount at the target is never touched.
type Target struct {
	path    string
	name    string
	parent  *os.File
	created bool // by Create
}

// OpenTarget opens the directory above path, which must lie below root, be
// absolute and clean, and lead through no symbolic link below root; root
// itself may be one. With an empty root any absolute clean path will do, and
// links are followed. The target itself need not exist.
//
// A missing parent is an error for which errors.Is(err, fs.ErrNotExist).
func OpenTarget(root, path string) (*Target, error) {
	fail := func(err error) (*Target, error) {
		return nil, &Error{Op: "open mount point", Target: path, Err: err}
	}
	if err := CheckPath(path); err != nil {
		return fail(err)
	}
	dir, name := filepath.Split(path)
	var parent *os.File
	var err error
	if root == "" {
		parent, err = os.OpenFile(filepath.Clean(dir), unix.O_PATH|unix.O_DIRECTORY, 0)
	} else {
		rel, ok := strings.CutPrefix(filepath.Clean(dir)+"/", strings.TrimSuffix(filepath.Clean(root), "/")+"/")
		if !ok {
			return fail(because(ErrUnsafePath, "it is not below %s", root))
		}
		if parent, err = os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
			parent, err = openBeneath(parent, filepath.Clean(rel), unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
		}
		if err == nil {
			parent, err = requireDirectory(parent)
		}
	}
	if err != nil {
		return fail(err)
	}
	return &Target{path: path, name: name, parent: parent}, nil
}

// Path is the target as it was given.
func (t *Target) Path() string { return t.path }

// Close releases the parent directory.
func (t *Target) Close() error { return t.parent.Close() }

// handle names the target for a system call of this process. Other processes cannot
// redirect it.
func (t *Target) handle() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", t.parent.Fd(), t.name)
}

// tablePath is the target's name in the mount table, which knows no symbolic
// links; the kubelet's directory often is one.
func (t *Target) tablePath() string {
	dir, err := pathOf(t.parent)
	if err != nil {
		return t.path
	}
	return filepath.Join(dir, t.name)
}

// vacant opens the directory at the target, if it is one and nothing is
// mounted there, so that a mount goes to what was looked at.
func (t *Target) vacant() (*os.File, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(t.parent.Fd()), t.name, &how)
	if errors.Is(err, unix.ENOSYS) {
		fd, err = t.vacantClassic()
	}
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, t.occupied()
	case errors.Is(err, unix.ENOENT):
		return nil, fmt.Errorf("the mount point is gone: %w", err)
	case err != nil:
		return nil, err
	}
	f := os.NewFile(uintptr(fd), t.path)
	if _, err := requireDirectory(f); err != nil {
		return nil, because(ErrUnsafePath, "the mount point is no directory")
	}
	return f, nil
}

// vacantClassic does so before Linux 5.6.
func (t *Target) vacantClassic() (int, error) {
	if info, err := t.topMount(); err != nil || info != nil {
		return -1, firstError(err, unix.EXDEV)
	}
	return unix.Openat(int(t.parent.Fd()), t.name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
}

func (t *Target) occupied() error {
	info, err := t.topMount()
	if err != nil || info == nil {
		return because(ErrOccupied, "something else is mounted there")
	}
	return because(ErrOccupied, "%s; unmount it first", Describe(info))
}

// Mounted reports whether something is mounted at the target, in constant
// time and without touching what is mounted: the kernel is asked to open the
// target without crossing into a mount. A target that does not exist is not
// mounted.
func (t *Target) Mounted() (bool, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(t.parent.Fd()), t.name, &how)
	switch {
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EXDEV):
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.ENOSYS):
		info, err := t.topMount()
		return info != nil, err
	}
	return false, &Error{Op: "examine mount point", Target: t.path, Err: err}
}

// Below returns the paths of what is mounted directly below the target, in constant
// time for each of its entries. Of a target that is a mount point itself, or does not
// exist, there are none: nothing that is mounted is touched.
func (t *Target) Below() ([]string, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(t.parent.Fd()), t.name, &how)
	switch {
	case errors.Is(err, unix.ENOSYS):
		return t.belowClassic()
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, &Error{Op: "examine what is below", Target: t.path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), t.path)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, &Error{Op: "examine what is below", Target: t.path, Err: err}
	}
	var below []string
	for _, name := range names {
		entry := &Target{path: filepath.Join(t.path, name), name: name, parent: dir}
		mounted, err := entry.Mounted()
		if err != nil {
			return nil, err
		}
		if mounted {
			below = append(below, entry.path)
		}
	}
	return below, nil
}

// belowClassic does so before Linux 5.6, from the mount table.
func (t *Target) belowClassic() ([]string, error) {
	path := t.tablePath()
	infos, err := Mounts(func(i *Info) (skip, stop bool) {
		return i.Mountpoint != path && filepath.Dir(i.Mountpoint) != path, false
	})
	if err != nil || slices.ContainsFunc(infos, func(i *Info) bool { return i.Mountpoint == path }) {
		return nil, err
	}
	below := make([]string, 0, len(infos))
	for _, i := range infos {
		below = append(below, filepath.Join(t.path, filepath.Base(i.Mountpoint)))
	}
	slices.Sort(below)
	return slices.Compact(below), nil
}

// Create makes the directory, with the mode that the kubelet gives to mount
// points, unless it is there. Discard takes back what Create made.
func (t *Target) Create() error {
	err := unix.Mkdirat(int(t.parent.Fd()), t.name, 0o750)
	switch {
	case err == nil:
		t.created = true
		return nil
	case !errors.Is(err, unix.EEXIST):
		return &Error{Op: "create mount point", Target: t.path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(t.parent.Fd()), t.name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT); err != nil {
		return &Error{Op: "examine mount point", Target: t.path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &Error{Op: "create mount point", Target: t.path, Err: because(ErrUnsafePath, "it exists and is no directory")}
	}
	return nil
}

// Discard removes the directory if Create made it. It is for the way back
// after a failure, so it has no error to return.
func (t *Target) Discard() {
	if t.created {
		_ = unix.Unlinkat(int(t.parent.Fd()), t.name, unix.AT_REMOVEDIR)
		t.created = false
	}
}

// Info returns the mount table's entry of what is mounted at the target, the
// topmost of several, or nil. Only if something is mounted does it read the
// table, which takes longer the more mounts there are.
func (t *Target) Info() (*Info, error) {
	mounted, err := t.Mounted()
	if err != nil || !mounted {
		return nil, err
	}
	return t.topMount()
}

// topMount returns the mount table's entry of what is mounted at t, or nil, of
// stacked mounts the topmost. It reads the whole table, so it is for rare ways
// and for error messages; it never touches a mount.
func (t *Target) topMount() (*Info, error) {
	path := t.tablePath()
	infos, err := Mounts(func(i *Info) (skip, stop bool) { return i.Mountpoint != path, false })
	if err != nil {
		return nil, err
	}
	return topOf(infos), nil
}
