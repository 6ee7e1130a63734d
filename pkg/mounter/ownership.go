package mounter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
func (m *Mounter) SetGroup(ctx context.Context, root *os.File, gid int) error {
	fail := func(err error) error { return &Error{Op: fmt.Sprintf("give to group %d", gid), Err: err} }
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return fail(err)
	}
	if int(st.Gid) == gid && st.Mode&unix.S_ISGID != 0 && st.Mode&groupDir == groupDir {
		return nil
	}
	err := groupBelow(ctx, root, gid)
	if err == nil {
		err = firstError(unix.Fchown(int(root.Fd()), -1, gid), unix.Fchmod(int(root.Fd()), st.Mode&0o7777|unix.S_ISGID|groupDir))
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// groupBelow does everything in a directory. Names are looked up in the open
// directory only and may be any bytes: they are the pods' choice.
func groupBelow(ctx context.Context, dir *os.File, gid int) error {
	for {
		names, err := dir.Readdirnames(1024)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// Pods that share the volume may delete files meanwhile.
			if err := groupEntry(ctx, dir, name, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
}

// groupEntry does one entry of a directory, and what is in it. Once it is open
// nobody can put another in its place.
func groupEntry(ctx context.Context, dir *os.File, name string, gid int) error {
	path := filepath.Join(dir.Name(), name)
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	entry := os.NewFile(uintptr(fd), path)
	defer entry.Close()
	st, err := groupOne(fd, gid)
	if err != nil {
		return &os.PathError{Op: "change", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	readable, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	entry.Close() // one descriptor for each level is enough
	below := os.NewFile(uintptr(readable), path)
	defer below.Close()
	return groupBelow(ctx, below, gid)
}

// groupOne changes what fd, which is O_PATH, stands for. chown(2) takes setuid
// and setgid away; the kubelet gives them back, as it sets the mode that it
// read before (changeFilePermission).
func groupOne(fd, gid int) (st unix.Stat_t, err error) {
	if err := unix.Fstat(fd, &st); err != nil {
		return st, err
	}
	if err := unix.Fchownat(fd, "", -1, gid, unix.AT_EMPTY_PATH); err != nil {
		return st, err
	}
	mode := st.Mode & 0o7777
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return st, nil
	case unix.S_IFDIR:
		mode |= groupDir | unix.S_ISGID
	default:
		mode |= groupFile
	}
	// fchmod(2) does not take O_PATH.
	return st, unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
