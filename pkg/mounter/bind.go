package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Bind mounts the directory dir at t. The directory must be one of the roots, or lie below
// one, after all symbolic links are followed.
// Options are those of the mount itself (ro, nosuid, noexec, …). prepare gets the root of
// the mount before it can be seen at t, read-only if it will be; what it changes, such as a
// group ([Mounter.SetGroup]), changes dir for all who have it.
// If something is mounted at t the error is [ErrOccupied]: a mount that may be called
// again asks [Target.Mounted] first.
func (m *Mounter) Bind(ctx context.Context, dir string, roots Roots, t *Target, options []string, prepare func(root *os.File) error) error {
	fail := func(err error) error { return &Error{Op: "bind", Source: dir, Target: t.path, Err: err} }
	opened, err := openDirectory(ctx, dir, roots)
	if err != nil {
		return fail(err)
	}
	defer opened.Close()
	s := source{device: dir, bind: opened, options: parseOptions(options), given: options}
	if len(s.options.fs) > 0 {
		return s.err("bind", t.path, errors.New("a directory takes only options of the mount itself (ro, nosuid, nodev, noexec, noatime, …), not "+strings.Join(s.options.fs, ",")))
	}
	return m.mountSource(ctx, s, t, prepare)
}

// openDirectory opens a directory of the node below one of the roots, without
// touching what is there (O_PATH). What is opened is what is mounted, so that
// no link can be put in the way in between.
func openDirectory(ctx context.Context, path string, roots Roots) (*os.File, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	opened, err := openPath(path, roots.Below)
	if err != nil {
		return nil, err
	}
	if err := roots.check(ctx, path, opened); err != nil {
		opened.Close()
		return nil, err
	}
	return requireDirectory(opened)
}

// FindDirectory reports why a directory could not be bound.
func (m *Mounter) FindDirectory(ctx context.Context, path string, roots Roots) error {
	opened, err := openDirectory(ctx, path, roots)
	if err != nil {
		return &Error{Op: "bind", Source: path, Err: err}
	}
	return opened.Close()
}

// SameDirectory reports whether the directory at path is what is mounted at a
// place. One that does not exist is not.
func (m *Mounter) SameDirectory(ctx context.Context, path string, roots Roots, at string) (bool, error) {
	opened, err := openDirectory(ctx, path, roots)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &Error{Op: "bind", Source: path, Target: at, Err: err}
	}
	defer opened.Close()
	var x, y unix.Stat_t
	err = errors.Join(unix.Fstat(int(opened.Fd()), &x), unix.Stat(at, &y))
	return err == nil && x.Dev == y.Dev && x.Ino == y.Ino, err
}

// openPath opens a path below one of the roots, by name and after following
// symbolic links.
func openPath(path string, roots []string) (*os.File, error) {
	for _, root := range roots {
		if root == Anywhere {
			return os.OpenFile(path, unix.O_PATH, 0)
		}
		if !below(root, path) {
			continue
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		opened, err := openRoot(root)
		if err != nil {
			return nil, err
		}
		mount, err := mountOf(int(opened.Fd()))
		if err != nil {
			opened.Close()
			return nil, err
		}
		found, err := openBeneath(opened, rel, unix.RESOLVE_BENEATH)
		if err != nil {
			return nil, err
		}
		return refuseAutomounts(found, mount)
	}
	return nil, outside(roots)
}

// MakeReadOnly makes what is mounted at t read-only there, with what is mounted below
// it, and nowhere else, and verifies it. A filesystem that hangs is not waited for.
func (m *Mounter) MakeReadOnly(ctx context.Context, t *Target) error {
	err := t.within(ctx, patience(ctx), func(path string) error {
		err := error(unix.ENOSYS)
		if !m.Classic {
			err = unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}
		var fs unix.Statfs_t
		if errors.Is(err, unix.ENOSYS) {
			if err = unix.Statfs(path, &fs); err == nil {
				err = unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|classicFlagsOf(&fs), "")
			}
		}
		if err == nil {
			err = unix.Statfs(path, &fs)
		}
		if err == nil && fs.Flags&unix.ST_RDONLY == 0 {
			err = errors.New("it should be read-only and is writable")
		}
		return err
	})
	if err != nil {
		return &Error{Op: "make read-only", Target: t.path, Err: err}
	}
	return nil
}

// Memory mounts a tmpfs of at most size bytes at t; 0 leaves the kernel's
// default, half of the memory. All may write to it, as to an emptyDir, unless
// the options have a mode.
func (m *Mounter) Memory(ctx context.Context, size int64, t *Target, options []string, prepare func(root *os.File) error) error {
	s := source{fsType: "tmpfs", device: "tmpfs", options: parseOptions(options), given: options}
	s.options.fs = append([]string{"mode=0777"}, s.options.fs...)
	if size > 0 {
		s.options.fs = append(s.options.fs, sizeOption+"="+strconv.FormatInt(size, 10))
	}
	return m.mountSource(ctx, s, t, prepare)
}

// ResizeMemory raises the bound of the tmpfs at t to size bytes. One that is
// as high already stays as it is.
func (m *Mounter) ResizeMemory(_ context.Context, size int64, t *Target) error {
	fail := func(err error) error { return &Error{Op: "resize", Target: t.path, FSType: "tmpfs", Err: err} }
	info, err := t.Info()
	switch {
	case err != nil:
		return err
	case info == nil:
		return fail(errors.New("it is not mounted"))
	case info.FSType != "tmpfs":
		return fail(fmt.Errorf("%s is not a tmpfs", Describe(info)))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(t.handle(), &st); err != nil {
		return fail(err)
	}
	if st.Blocks == 0 || int64(st.Blocks)*st.Bsize >= size {
		return nil
	}
	err = unix.ENOSYS
	if !m.Classic {
		err = setSize(t, size)
	}
	if errors.Is(err, unix.ENOSYS) {
		err = unix.Mount("", t.handle(), "", unix.MS_REMOUNT|classicFlagsOf(&st), sizeOption+"="+strconv.FormatInt(size, 10))
	}
	if err != nil {
		return fail(err)
	}
	m.log().Debug("grew tmpfs", "target", t.path, "to", size)
	return nil
}

const sizeOption = "size"

// setSize gives the size alone: tmpfs leaves what is not named as it is
// (tmpfs(5), remount).
func setSize(t *Target, size int64) error {
	fd, err := unix.Fspick(int(t.parent.Fd()), t.name, unix.FSPICK_CLOEXEC|unix.FSPICK_NO_AUTOMOUNT|unix.FSPICK_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.FsconfigSetString(fd, sizeOption, strconv.FormatInt(size, 10)); err != nil {
		return withContextLog(fd, err)
	}
	if err := unix.FsconfigReconfigure(fd); err != nil {
		return withContextLog(fd, err)
	}
	return nil
}
