package mounter

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// An identity tells one mount from all others, in constant time.
type identity struct {
	mountID   uint64 // 0 where the kernel does not tell (before 5.8)
	dev       uint64
	inode     uint64
	mountRoot bool
}

// identify reads the identity of a mount that this process has just made.
// It must not be used on mounts of unknown health.
func identify(dirfd int, path string, flags int) (identity, error) {
	var st unix.Statx_t
	flags |= unix.AT_NO_AUTOMOUNT | unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_DONT_SYNC
	if err := unix.Statx(dirfd, path, flags, unix.STATX_INO|unix.STATX_TYPE|unix.STATX_MNT_ID, &st); err != nil {
		return identity{}, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	id := identity{
		dev:       unix.Mkdev(st.Dev_major, st.Dev_minor),
		inode:     st.Ino,
		mountRoot: st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		id.mountID = st.Mnt_id
	}
	return id, nil
}

// verify checks that the mount that can be seen at t is the one that was
// prepared, and that it is read-only if it should be. A mount in another
// mount namespace, or one that is covered at once by another mount, is an error.
func verify(t *Target, want identity, readOnly bool) error {
	got, err := identify(int(t.parent.Fd()), t.name, 0)
	if err != nil {
		return err
	}
	if got.mountID != want.mountID || got.dev != want.dev || got.inode != want.inode {
		return errors.New("what is mounted there now is not what was just mounted; another process mounts at this path")
	}
	if !readOnly {
		return nil
	}
	return verifyReadOnly(t)
}

func verifyReadOnly(t *Target) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(t.handle(), &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: t.path, Err: err}
	}
	if fs.Flags&unix.ST_RDONLY == 0 {
		return errors.New("it should be read-only and is writable")
	}
	return nil
}
