package mounter

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attachClassic mounts with mount(2) alone, for kernels before 5.12. The
// mount can be seen while it is prepared, so a process that is killed in
// between leaves an unfinished one: a window of microseconds for the
// read-only flag of a bind, and as long as prepare takes.
func (m *Mounter) attachClassic(s source, t *Target, prepare func(root *os.File) error) error {
	if err := classicMount(s, t); err != nil {
		return s.err("mount", t.path, err)
	}
	err := m.finishClassic(s, t, prepare)
	if err != nil {
		m.takeBack(t)
		return s.err("prepare mount", t.path, err)
	}
	m.log().Debug("mounted", "source", s.device, "fsType", s.fsType, "target", t.path, "readOnly", s.options.readOnly)
	return nil
}

func classicMount(s source, t *Target) error {
	flags, data := s.options.classicFlags()
	if s.bind != nil {
		return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", s.bind.Fd()), t.handle(), "", unix.MS_BIND, "")
	}
	err := unix.Mount(s.device, t.handle(), s.fsType, flags, data)
	switch {
	case !errors.Is(err, unix.EBUSY):
		return err
	case s.options.readOnly:
		// Mounted read-write elsewhere: share it, then forbid writing here.
		return unix.Mount(s.device, t.handle(), s.fsType, flags&^unix.MS_RDONLY, data)
	}
	if unix.Mount(s.device, t.handle(), s.fsType, flags|unix.MS_RDONLY, data) != nil {
		return err
	}
	return unix.Mount("", t.handle(), "", flags|unix.MS_REMOUNT, data)
}

func (m *Mounter) finishClassic(s source, t *Target, prepare func(root *os.File) error) error {
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
	flags, _ := s.options.classicFlags()
	if s.bind == nil && !s.options.readOnly || flags == 0 {
		return nil
	}
	// A bind takes the flags of its source until it is remounted.
	if err := unix.Mount("", t.handle(), "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return err
	}
	if s.options.readOnly {
		return verifyReadOnly(t)
	}
	return nil
}
