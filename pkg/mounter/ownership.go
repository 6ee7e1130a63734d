package mounter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

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
	tree, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", root.Fd()))
	if err != nil {
		return fail(err)
	}
	defer tree.Close()
	err = fs.WalkDir(tree.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case path == ".":
			return nil
		}
		return setGroup(tree, path, d, gid)
	})
	if err != nil {
		return fail(err)
	}
	return firstError(unix.Fchown(int(root.Fd()), -1, gid), unix.Fchmod(int(root.Fd()), st.Mode&0o7777|unix.S_ISGID|groupDir))
}

func setGroup(tree *os.Root, path string, d fs.DirEntry, gid int) error {
	if err := tree.Lchown(path, -1, gid); err != nil {
		return ignoreGone(err)
	}
	if !d.IsDir() && !d.Type().IsRegular() {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return ignoreGone(err)
	}
	mode := info.Mode() | groupFile
	if d.IsDir() {
		mode = info.Mode() | groupDir | fs.ModeSetgid
	}
	return ignoreGone(tree.Chmod(path, mode))
}

// ignoreGone: pods that share the volume may delete files meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
