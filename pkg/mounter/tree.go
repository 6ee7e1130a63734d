package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mountSource mounts s at t. prepare changes the root of the new mount before other
// processes can see it. After an error nothing is mounted at t, and nothing will be:
// no mount appears after the caller was told that the deadline has passed.
func (m *Mounter) mountSource(ctx context.Context, s source, t *Target, prepare func(root *os.File) error) error {
	at, err := t.vacant()
	if err != nil {
		return s.err("mount", t.path, err)
	}
	defer at.Close()
	if slices.ContainsFunc(s.options.fs, isLabel) && !hasSELinux() {
		m.log().Debug("leaving out SELinux labels, as SELinux is off", "target", t.path)
		s.options = s.options.withoutLabels()
	}
	tree, err := m.detached(s)
	if errors.Is(err, unix.ENOSYS) {
		m.log().Debug("this kernel cannot prepare a detached mount", "target", t.path)
		return m.mountSourceClassic(ctx, s, t, at, prepare)
	}
	if err != nil {
		return s.err("mount", t.path, err)
	}
	defer tree.Close()
	if err := prepareRoot(tree, prepare); err != nil {
		return s.err("prepare mount", t.path, err)
	}
	want, err := identify(int(tree.Fd()), "", unix.AT_EMPTY_PATH)
	if err != nil {
		return s.err("mount", t.path, err)
	}
	if ctx.Err() != nil {
		return s.err("mount", t.path, context.Cause(ctx))
	}
	if err := unix.MoveMount(int(tree.Fd()), "", int(at.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return s.err("mount", t.path, err)
	}
	if err := verify(t, want, s.options.readOnly); err != nil {
		// Through the tree, not the target: what is on top there may be another's.
		_ = unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", tree.Fd()), unix.MNT_DETACH)
		return s.err("verify mount", t.path, err)
	}
	m.log().Debug("mounted", "source", s.device, "fsType", s.fsType, "target", t.path, "readOnly", s.options.readOnly)
	return nil
}

// detached makes a mount that is not in the tree yet and ends with its file. ENOSYS says that the kernel is too old for that.
func (m *Mounter) detached(s source) (*os.File, error) {
	switch {
	case m.Classic:
		return nil, unix.ENOSYS
	case s.bind != nil:
		return detachedBind(s)
	}
	return detachedFilesystem(s)
}

func detachedBind(s source) (*os.File, error) {
	fd, err := unix.OpenTree(int(s.bind.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, err
	}
	tree := os.NewFile(uintptr(fd), s.device)
	if attrs := s.options.mountAttrs(); attrs != 0 {
		attr := unix.MountAttr{Attr_set: uint64(attrs)}
		if attrs&unix.MOUNT_ATTR__ATIME != 0 {
			attr.Attr_clr = unix.MOUNT_ATTR__ATIME
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
			tree.Close()
			return nil, err
		}
	}
	return tree, nil
}

func detachedFilesystem(s source) (*os.File, error) {
	tree, err := newFilesystem(s, s.options.readOnly)
	if !errors.Is(err, unix.EBUSY) {
		return tree, err
	}
	if s.options.readOnly {
		// The same filesystem is mounted read-write elsewhere on this
		// node: share it, but make this mount read-only.
		if shared, err := newFilesystem(s, false); err == nil {
			return shared, nil
		}
		return nil, err
	}
	// It is mounted read-only elsewhere. That mount stays read-only, the
	// filesystem below it becomes writable.
	shared, sharedErr := newFilesystem(s, true)
	if sharedErr != nil {
		return nil, err
	}
	if err := makeWritable(shared); err != nil {
		shared.Close()
		return nil, notWritable(err)
	}
	return shared, nil
}

// newFilesystem makes a detached mount of a filesystem with a superblock that is
// read-only or not; the mount's own flags follow s.options.
func newFilesystem(s source, readOnlyFS bool) (*os.File, error) {
	fd, err := unix.Fsopen(s.fsType, unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		return nil, unknownFilesystem(s.fsType)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := configure(fd, s, readOnlyFS); err != nil {
		return nil, withContextLog(fd, err)
	}
	attrs := s.options.mountAttrs()
	mfd, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return nil, withContextLog(fd, err)
	}
	return os.NewFile(uintptr(mfd), s.device), nil
}

func configure(fd int, s source, readOnlyFS bool) error {
	if err := unix.FsconfigSetString(fd, "source", s.device); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if readOnlyFS {
		if err := unix.FsconfigSetFlag(fd, "ro"); err != nil {
			return fmt.Errorf("option ro: %w", err)
		}
	}
	for _, option := range s.options.fs {
		name, value, hasValue := strings.Cut(option, "=")
		var err error
		if hasValue {
			err = unix.FsconfigSetString(fd, name, value)
		} else {
			err = unix.FsconfigSetFlag(fd, name)
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
	}
	return unix.FsconfigCreate(fd)
}

func makeWritable(tree *os.File) error {
	fd, err := unix.Fspick(int(tree.Fd()), "", unix.FSPICK_EMPTY_PATH|unix.FSPICK_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.FsconfigSetFlag(fd, "rw"); err != nil {
		return withContextLog(fd, err)
	}
	if err := unix.FsconfigReconfigure(fd); err != nil {
		return withContextLog(fd, err)
	}
	return nil
}

// withContextLog adds what the filesystem itself said about a failure, which
// is far better than the bare errno (fsopen(2), "Message Retrieval").
func withContextLog(fd int, err error) error {
	var said []string
	buf := make([]byte, 1024)
	for range 16 {
		n, rerr := unix.Read(fd, buf)
		if rerr != nil || n == 0 {
			break
		}
		line := strings.TrimSpace(string(buf[:n]))
		if len(line) > 2 && line[1] == ' ' { // "e text", "w text", "i text"
			line = line[2:]
		}
		said = append(said, line)
	}
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(said, "; "))
}

// prepareRoot opens the root of a detached mount and hands it over.
func prepareRoot(tree *os.File, prepare func(*os.File) error) error {
	if prepare == nil {
		return nil
	}
	fd, err := unix.Openat(int(tree.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	root := os.NewFile(uintptr(fd), "/")
	defer root.Close()
	return prepare(root)
}
