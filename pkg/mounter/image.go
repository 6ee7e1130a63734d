package mounter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// An Image is a file that holds a disk, open.
type Image struct {
	// ReadOnly says that the file cannot be written to.
	ReadOnly bool
	// Created says that this call made the file.
	Created bool

	path       string
	f          *os.File
	dev, inode uint64
}

// Path is the image as it was named.
func (i *Image) Path() string { return i.path }

// Size is the image's length in bytes.
func (i *Image) Size() (int64, error) {
	st, err := i.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Key names the file itself, whatever path leads to it; for [LockName].
func (i *Image) Key() string { return fmt.Sprintf("image %d:%d", i.dev, i.inode) }

// Close closes the image.
func (i *Image) Close() error { return i.f.Close() }

// OpenImage opens an image. If it does not exist, or is empty, and size is not 0 it is created,
// sparse and in one step: no process uses a part of it. Any other is used as it is, whatever
// size says.
//
// The image must lie below one of the roots. Only root may write to it and to
// each directory above it; otherwise another user could replace the file.
// [Anywhere] allows all and asks for none of that.
//
// The directory above must exist: one that is missing may be a disk that is
// not mounted yet.
func (m *Mounter) OpenImage(ctx context.Context, path string, size int64, roots Roots) (*Image, error) {
	fail := func(err error) (*Image, error) {
		return nil, &Error{Op: "open image", Source: path, Err: err}
	}
	if err := CheckPath(path); err != nil {
		return fail(err)
	}
	image, err := openImageFile(ctx, path, roots)
	if errors.Is(err, fs.ErrNotExist) && size > 0 {
		var created bool
		if created, err = createImage(ctx, path, size, roots); err != nil {
			return fail(err)
		}
		image, err = openImageFile(ctx, path, roots)
		if err == nil {
			image.Created = created
		}
	}
	if errors.Is(err, fs.ErrNotExist) && size == 0 {
		err = fmt.Errorf("%w (with the option size it would be created)", err)
	}
	if err != nil {
		return fail(err)
	}
	return image, nil
}

// openImageFile looks before it opens: opening what is no file can hang, or
// have effects.
func openImageFile(ctx context.Context, path string, roots Roots) (*Image, error) {
	found, err := openRootOnly(path, roots.Below)
	if err == nil {
		defer found.Close()
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) { // nothing is made where it will be refused
		err = firstError(roots.check(ctx, path, found), err)
	}
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(found.Fd()), &st); err != nil {
		return nil, err
	}
	if err := requireRegular(st.Mode); err != nil {
		return nil, err
	}
	switch {
	case st.Size == 0:
		return nil, fmt.Errorf("it is empty: %w", fs.ErrNotExist)
	case st.Nlink > 1 && !slices.Contains(roots.Below, Anywhere): // another directory could show it
		return nil, because(ErrUnsafePath, "it has %d names (hard links), and must have one; find the others with find -inum %d", st.Nlink, st.Ino)
	}
	image := &Image{path: path, dev: st.Dev, inode: st.Ino}
	again := fmt.Sprintf("/proc/self/fd/%d", found.Fd())
	image.f, err = os.OpenFile(again, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ETXTBSY) {
		image.ReadOnly = true
		image.f, err = os.Open(again)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	return image, nil
}

func requireRegular(mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return errors.New("it is a directory, not an image (a directory is given with the option path)")
	case unix.S_IFBLK:
		return errors.New("it is a block device, not an image (a block device is given with the option device)")
	}
	return errors.New("it is no regular file, and so no image")
}

// createImage makes a sparse file. It reports false if another process made it first.
func createImage(ctx context.Context, path string, size int64, roots Roots) (bool, error) {
	dir, err := openRootOnly(filepath.Dir(path), roots.Below)
	if err == nil {
		dir, err = requireDirectory(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("cannot create it: %w (is the disk that should hold it mounted?)", err)
	}
	if err != nil {
		return false, fmt.Errorf("cannot create it: %w", err)
	}
	defer dir.Close()
	if err := roots.check(ctx, path, dir); err != nil {
		return false, err
	}
	if err := requireRoom(int(dir.Fd()), size); err != nil {
		return false, err
	}
	created, err := createFile(ctx, dir, filepath.Base(path), size)
	if errors.Is(err, unix.ELOOP) {
		return false, fmt.Errorf("it is a symbolic link that leads nowhere: %w", err)
	}
	if err != nil {
		return false, fmt.Errorf("cannot create it with %d bytes: %w", size, err)
	}
	return created, nil
}

// createFile gives a file its size, in one step. One that is empty is no image yet: its maker
// is at work, or was killed, or failed. The process with the lock on it completes it. O_TMPFILE
// would leave no empty file, but NFS lacks it.
func createFile(ctx context.Context, dir *os.File, name string, size int64) (created bool, err error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var open, named unix.Stat_t
	err = poll(ctx, func() error {
		if err := unix.Fstat(fd, &open); err != nil || open.Size > 0 {
			return err
		}
		return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	})
	if err == nil || lacksLocks(err) {
		err = unix.Fstat(fd, &open)
	}
	if err != nil || open.Size > 0 {
		return false, err
	}
	err = unix.Fstatat(int(dir.Fd()), name, &named, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT) || err == nil && (named.Dev != open.Dev || named.Ino != open.Ino):
		return createFile(ctx, dir, name, size) // a mount that failed removed it
	case err != nil:
		return false, err
	}
	if err := fill(f, size); err != nil {
		return false, err
	}
	return true, syncDirectory(dir)
}

// requireRoom refuses a size that the filesystem of fd could never hold.
func requireRoom(fd int, size int64) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if most := int64(st.Blocks) * st.Frsize; most > 0 && size > most {
		return because(ErrTooLarge, "it would have %d bytes, and the filesystem that holds it has %d in all", size, most)
	}
	return nil
}

// lacksLocks: the filesystem has none, or its server does not.
func lacksLocks(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.EOPNOTSUPP)
}

func fill(f *os.File, size int64) error {
	if err := unix.Ftruncate(int(f.Fd()), size); err != nil {
		return err
	}
	return f.Sync()
}

// syncDirectory makes a new name durable. dir is open as O_PATH.
func syncDirectory(dir *os.File) error {
	d, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// InPlace reports whether the image's path still leads to the file that was
// opened.
func (i *Image) InPlace() bool {
	var st unix.Stat_t
	return unix.Stat(i.path, &st) == nil && st.Dev == i.dev && st.Ino == i.inode
}

// Remove deletes an image that this call created; one that existed before, or that another
// process put in its place, stays. The caller holds the lock of its Key.
func (i *Image) Remove() {
	if i.Created && i.InPlace() {
		_ = os.Remove(i.path)
	}
}
