package mounter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// openDirs is how many directories a walk keeps open: more than the levels
	// of an ordinary tree.
	openDirs = 32
	// maxDepth is far below what pods can use by name: PATH_MAX allows 2,047
	// levels. It bounds what is remembered of a tree to 1 MiB.
	maxDepth = 1 << 14
	// readSize is what a directory is read by.
	readSize = 8 << 10
)

// errMoved says that the way back up is lost: a directory was moved during the
// walk.
var errMoved = errors.New("a directory was moved")

// A walk visits all that is below a directory, in bounded memory and with a
// bounded number of descriptors, whatever the tree is like. Its content is the
// pods' choice, and pods may change it meanwhile.
//
// It goes by descriptors, a name at a time, and so knows no paths. Of a deep
// tree only the lowest directories stay open. A closed one is opened again as
// ".." of the one below it, which must lead to the same inode: a directory that
// was moved meanwhile leads elsewhere. It is then read on where it was left, by
// the position that the filesystem gave; that stays good when other entries
// come and go on all common filesystems (seekdir(3)).
type walk struct {
	// visit gets each entry, O_PATH and not followed if it is a link, before what
	// is in it. It reports whether that is to be walked, too.
	visit func(fd int) (isDir bool, err error)

	mount  uint64 // of the root, before Linux 5.6
	closed []place
	open   []*directory // those below closed; empty at the end
	spare  []*directory
}

// A place is where a directory that is closed will be read on.
type place struct {
	identity
	position int64
}

// below walks what is in root, which stays open.
func (w *walk) below(ctx context.Context, root *os.File) error {
	defer w.close()
	fd, err := unix.Openat(int(root.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = w.enter(fd)
	}
	for err == nil && len(w.open) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err = w.step()
	}
	return err
}

// step visits one entry, or leaves the directory if there are no more.
func (w *walk) step() error {
	dir := w.open[len(w.open)-1]
	name, err := dir.next()
	if err != nil {
		return w.at("read a directory", err)
	}
	if name == "" {
		return w.leave()
	}
	fd, err := w.openEntry(dir.fd, name)
	switch {
	case isGone(err), errors.Is(err, unix.EXDEV): // pods may delete; what is mounted there is not in the volume
		return nil
	case err != nil:
		return w.at(fmt.Sprintf("open %q", name), err)
	}
	defer unix.Close(fd)
	isDir, err := w.visit(fd)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return w.at(fmt.Sprintf("change %q", name), err)
	case !isDir:
		return nil
	}
	readable, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	switch {
	case isGone(err):
		return nil
	case err != nil:
		return w.at(fmt.Sprintf("open %q", name), err)
	}
	return w.enter(readable)
}

func isGone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) }

// at says where something failed, as far as that is known.
func (w *walk) at(what string, err error) error {
	return fmt.Errorf("%s, %d directories down: %w", what, len(w.closed)+len(w.open)-1, err)
}

// openEntry opens an entry if it is in the same mount; otherwise the error is
// EXDEV.
func (w *walk) openEntry(dirfd int, name string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(dirfd, name, &how)
	if !errors.Is(err, unix.ENOSYS) {
		return fd, err
	}
	if w.mount == 0 {
		if w.mount, err = mountOf(dirfd); err != nil {
			return -1, err
		}
	}
	fd, err = unix.Openat(dirfd, name, flags, 0)
	if err != nil {
		return -1, err
	}
	mount, err := mountOf(fd)
	if err == nil && mount != w.mount {
		err = unix.EXDEV
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// mountOf returns the ID of the mount that a descriptor is in, as of Linux 3.15.
func mountOf(fd int) (uint64, error) {
	info, err := unix.Open("/proc/self/fdinfo/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(info)
	text := make([]byte, 128) // pos, flags and mnt_id come first (proc(5))
	n, err := unix.Read(info, text)
	if err != nil {
		return 0, err
	}
	_, id, _ := strings.Cut(string(text[:n]), "mnt_id:")
	id, _, _ = strings.Cut(strings.TrimSpace(id), "\n")
	return strconv.ParseUint(id, 10, 64)
}

// enter goes down into a directory, which is the walk's from then on.
func (w *walk) enter(fd int) error {
	if err := w.makeRoom(); err != nil {
		unix.Close(fd)
		return err
	}
	var d *directory
	if n := len(w.spare); n > 0 {
		d, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		d = &directory{}
	}
	d.fd, d.position, d.unread = fd, 0, nil
	w.open = append(w.open, d)
	return nil
}

// makeRoom closes the highest directory that is open if no more may be.
func (w *walk) makeRoom() error {
	if len(w.open) < openDirs {
		return nil
	}
	if len(w.closed)+len(w.open) >= maxDepth {
		return fmt.Errorf("there are more than %d directories in each other, made by a program that went wrong: remove them", maxDepth)
	}
	top := w.open[0]
	id, err := identify(top.fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return err
	}
	w.closed = append(w.closed, place{id, top.position})
	w.drop(0)
	return nil
}

// leave goes up.
func (w *walk) leave() error {
	last := len(w.open) - 1
	if last > 0 || len(w.closed) == 0 {
		w.drop(last)
		return nil
	}
	back := w.closed[len(w.closed)-1]
	fd, err := openParent(w.open[0].fd)
	if isGone(err) || errors.Is(err, unix.EXDEV) { // it is in no directory of this mount any more
		return errMoved
	}
	if err != nil {
		return w.at("leave a directory", err)
	}
	id, err := identify(fd, "", unix.AT_EMPTY_PATH)
	if err == nil && id != back.identity {
		err = errMoved
	}
	if err == nil {
		_, err = unix.Seek(fd, back.position, unix.SEEK_SET)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	unix.Close(w.open[0].fd)
	d := w.open[0]
	d.fd, d.position, d.unread = fd, back.position, nil
	w.closed = w.closed[:len(w.closed)-1]
	return nil
}

// openParent opens the directory that one is in. The caller looks whether it is
// the right one, on old kernels also whether it is in the same mount.
func openParent(fd int) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	how := unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS}
	parent, err := unix.Openat2(fd, "..", &how)
	if errors.Is(err, unix.ENOSYS) {
		parent, err = unix.Openat(fd, "..", flags, 0)
	}
	return parent, err
}

// drop closes an open directory.
func (w *walk) drop(i int) {
	d := w.open[i]
	unix.Close(d.fd)
	w.open = append(w.open[:i], w.open[i+1:]...)
	w.spare = append(w.spare, d)
}

func (w *walk) close() {
	for len(w.open) > 0 {
		w.drop(0)
	}
}

// A directory is being read.
type directory struct {
	fd       int
	buffer   [readSize]byte
	unread   []byte // part of buffer
	position int64  // behind what was read
}

// next returns the next name, which may be any bytes; "" after the last one.
func (d *directory) next() (string, error) {
	for {
		if len(d.unread) == 0 {
			n, err := unix.Getdents(d.fd, d.buffer[:])
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case n == 0, isGone(err): // the directory itself may be deleted
				return "", nil
			case err != nil:
				return "", err
			}
			d.unread = d.buffer[:n]
		}
		// struct linux_dirent64, getdents(2)
		const length, header = 16, 19
		size := 0
		if len(d.unread) > header {
			size = int(binary.NativeEndian.Uint16(d.unread[length:]))
		}
		if size <= header || size > len(d.unread) {
			return "", unix.EIO
		}
		name, _, _ := bytes.Cut(d.unread[header:size], []byte{0})
		d.position = int64(binary.NativeEndian.Uint64(d.unread[8:]))
		d.unread = d.unread[size:]
		if s := string(name); s != "." && s != ".." {
			return s, nil
		}
	}
}
