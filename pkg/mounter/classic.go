package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mountSourceClassic mounts with mount(2) alone, for kernels before 5.12. The
// mount can be seen while it is prepared, so a process that is killed in
// between leaves an unfinished one: a window of microseconds for the
// read-only flag of a bind, and as long as prepare takes.
//
// The mount goes to the directory at, not to a name: mount(2) follows links.
func (m *Mounter) mountSourceClassic(ctx context.Context, s source, t *Target, at *os.File, prepare func(root *os.File) error) error {
	if ctx.Err() != nil {
		return s.err("mount", t.path, context.Cause(ctx))
	}
	shared, err := classicMount(s, fmt.Sprintf("/proc/self/fd/%d", at.Fd()))
	if err != nil {
		return s.err("mount", t.path, err)
	}
	err = m.finishClassic(s, t, shared, prepare)
	if err != nil {
		m.takeBack(t)
		return s.err("prepare mount", t.path, err)
	}
	m.log().Debug("mounted", "source", s.device, "fsType", s.fsType, "target", t.path, "readOnly", s.options.readOnly)
	return nil
}

// classicMount reports whether the filesystem is mounted elsewhere already,
// read-only where this mount is not, or the other way round.
func classicMount(s source, at string) (shared bool, err error) {
	flags, data := s.options.classicFlags()
	if s.bind != nil {
		return false, unix.Mount(fmt.Sprintf("/proc/self/fd/%d", s.bind.Fd()), at, "", unix.MS_BIND, "")
	}
	err = unix.Mount(s.device, at, s.fsType, flags, data)
	if errors.Is(err, unix.EBUSY) && unix.Mount(s.device, at, s.fsType, flags^unix.MS_RDONLY, data) == nil {
		return true, nil
	}
	switch {
	case errors.Is(err, unix.ENODEV):
		return false, unknownFilesystem(s.fsType)
	case errors.Is(err, unix.EINVAL):
		return false, fmt.Errorf("%w (an option that it does not know, or a damaged filesystem; dmesg says which)", err)
	}
	return false, err
}

func (m *Mounter) finishClassic(s source, t *Target, shared bool, prepare func(root *os.File) error) error {
	if shared && !s.options.readOnly {
		flags, data := s.options.classicFlags()
		if err := unix.Mount("", t.handle(), "", flags|unix.MS_REMOUNT, data); err != nil {
			return notWritable(err)
		}
	}
	if prepare != nil {
		root, err := os.OpenFile(t.handle(), unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		err = prepare(root)
		root.Close()
		if err != nil {
			return err
		}
	}
	if s.bind != nil || s.options.readOnly {
		if err := setClassicFlags(s, t); err != nil {
			return err
		}
	}
	if s.options.readOnly {
		return verifyReadOnly(t)
	}
	return nil
}

// setClassicFlags gives the mount at t, and no other mount of its filesystem,
// the flags of s in addition to those that it has: a remount replaces all flags,
// and a bind has those of its source.
func setClassicFlags(s source, t *Target) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(t.handle(), &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: t.path, Err: err}
	}
	flags, _ := s.options.classicFlags()
	if err := unix.Mount("", t.handle(), "", unix.MS_REMOUNT|unix.MS_BIND|flags|classicFlagsOf(&fs), ""); err != nil {
		return fmt.Errorf("set the flags of the mount: %w", err)
	}
	return nil
}

// classicFlagsOf are the flags that a mount has, but for those on access
// times, which a remount leaves alone.
func classicFlagsOf(fs *unix.Statfs_t) (flags uintptr) {
	for _, p := range [...]struct {
		has  int64
		flag uintptr
	}{
		{unix.ST_RDONLY, unix.MS_RDONLY},
		{unix.ST_NOSUID, unix.MS_NOSUID},
		{unix.ST_NODEV, unix.MS_NODEV},
		{unix.ST_NOEXEC, unix.MS_NOEXEC},
		{0x2000, unix.MS_NOSYMFOLLOW}, // ST_NOSYMFOLLOW
	} {
		if fs.Flags&p.has != 0 {
			flags |= p.flag
		}
	}
	return flags
}
