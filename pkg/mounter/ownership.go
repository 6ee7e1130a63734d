package mounter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Modes as the kubelet gives them to a volume with an fsGroup
// (pkg/volume/volume_linux.go): the group may read and write, and what is
// made in a directory later belongs to the group too.
const (
	groupFile = 0o660
	groupDir  = 0o110 | groupFile
)

// SetGroup gives the tree below root to a group, with the modes that the
// kubelet uses for fsGroup. If the root is so already the rest is taken to be
// so too (fsGroupChangePolicy OnRootMismatch). It follows no symbolic link,
// and the root is done last, so that a walk which was cut short is repeated.
// What the filesystem refuses stays as it is, with a warning: the kubelet does
// so, too, and an NFS export with root_squash refuses everything.
func (m *Mounter) SetGroup(ctx context.Context, root *os.File, gid int) error {
	fail := func(err error) error { return &Error{Op: fmt.Sprintf("give to group %d", gid), Err: err} }
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return fail(err)
	}
	if int(st.Gid) == gid && st.Mode&unix.S_ISGID != 0 && st.Mode&groupDir == groupDir {
		return nil
	}
	var refused error
	err := groupBelow(ctx, root, gid, &refused)
	if err == nil {
		err = unlessRefused(firstError(unix.Fchown(int(root.Fd()), -1, gid), unix.Fchmod(int(root.Fd()), st.Mode&0o7777|unix.S_ISGID|groupDir)), &refused)
	}
	if err != nil {
		return fail(err)
	}
	if refused != nil {
		m.log().Warn("files keep their group: the filesystem refuses another one", "directory", root.Name(), "group", gid, "error", refused)
	}
	return nil
}

// unlessRefused returns err, but keeps one in refused by which a filesystem says that it
// never does this.
func unlessRefused(err error, refused *error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.EROFS) {
		*refused = err
		return nil
	}
	return err
}

// groupTries bounds how often a walk begins again since pods move directories.
const groupTries = 5

// groupBelow gives what is below root to a group.
func groupBelow(ctx context.Context, root *os.File, gid int, refused *error) error {
	for range groupTries {
		w := walk{visit: func(fd int) (bool, error) {
			isDir, err := groupOne(fd, gid)
			return isDir, unlessRefused(err, refused)
		}}
		if err := w.below(ctx, root); !errors.Is(err, errMoved) {
			return err
		}
	}
	return because(ErrBusy, "another pod moves directories that are more than %d levels deep; retry when it has finished", openDirs)
}

// groupOne changes what fd, which is O_PATH, stands for. chown(2) clears setuid
// and setgid; the kubelet restores them, since it sets the mode that it read before
// (changeFilePermission). Files that are right already are not touched, so that a
// repeated walk gets further than the one before.
func groupOne(fd, gid int) (isDir bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, err
	}
	isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	mode := st.Mode & 0o7777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
	case unix.S_IFDIR:
		mode |= groupDir | unix.S_ISGID
	default:
		mode |= groupFile
	}
	if int(st.Gid) == gid && mode == st.Mode&0o7777 {
		return isDir, nil
	}
	err = unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return false, err
	}
	// fchmod(2) does not take O_PATH. The kubelet sets the mode also where it may not
	// set the group.
	return isDir, firstError(err, unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
