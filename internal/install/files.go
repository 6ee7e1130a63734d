package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// files makes the changes on disk, each atomic or invisible to the kubelet.
type files struct {
	// after is called after each of them.
	after func(step string) error
}

func (f files) done(op, path string) error { return f.after(op + " " + filepath.Base(path)) }

// write creates a file with data, durably.
func (f files) write(path string, data []byte, mode fs.FileMode) error {
	err := f.fill(path, data, mode)
	if err == nil {
		err = f.sync(path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, both(unwrapPath(err), f.remove(path)))
	}
	return nil
}

// fill holds the lock that every fork of this process takes. A child that is forked while
// the file is open for writing would hold it open until its exec, and meanwhile executing
// the file would fail with "text file busy".
func (f files) fill(path string, data []byte, mode fs.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()

	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	half := len(data) / 2
	for _, part := range [][]byte{data[:half], data[half:]} { // so that tests can kill between them
		if err == nil {
			_, err = file.Write(part)
		}
		if err == nil {
			err = f.done("write half of", path)
		}
	}
	if err == nil {
		err = file.Chmod(mode) // after the umask
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// sync makes a file or directory durable. It opens files only for reading, for the reason
// in fill.
func (f files) sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	// Some file systems cannot sync directories and say so with EINVAL.
	if err := file.Sync(); err != nil && !errors.Is(err, unix.EINVAL) {
		return err
	}
	return f.done("sync", path)
}

func (f files) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return f.done("rename "+filepath.Base(from)+" to", to)
}

// renameNoReplace fails if there is something at to.
func (f files) renameNoReplace(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// This file system does not support it. Other installers wait for our lock, and
		// rename fails if the target is a directory.
		return f.rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return f.done("rename "+filepath.Base(from)+" to", to)
}

// clone makes a hard link, or a copy if that is not possible.
func (f files) clone(from, to string) error {
	if os.Link(from, to) == nil {
		return f.done("link "+filepath.Base(from)+" to", to)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return f.write(to, data, info.Mode().Perm())
}

// remove deletes a file, if it exists.
func (f files) remove(path string) error {
	switch err := unix.Unlink(path); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return &fs.PathError{Op: "remove", Path: path, Err: err}
	}
	return f.done("remove", path)
}

func (f files) removeFiles(paths []string) error {
	for _, path := range paths {
		if err := f.remove(path); err != nil {
			return err
		}
	}
	return nil
}

// removeTree deletes a file, or a directory with what is in it. It follows no link, also if
// another process puts one in the place of a directory meanwhile.
func (f files) removeTree(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return f.done("remove", path)
}

// mkdir makes a directory of dirMode, whatever the umask.
func (f files) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Chmod(dirMode); err != nil {
		return err
	}
	return f.done("mkdir", path)
}

func (f files) rmdir(path string) error {
	if err := unix.Rmdir(path); err != nil {
		return &fs.PathError{Op: "remove directory", Path: path, Err: err}
	}
	return f.done("rmdir", path)
}

// removeDir deletes d in place, the executable and the directory last: a kubelet
// that starts in between finds a driver that works, or none, except in the one
// instant when the directory has none. The record outlives the executable, so that an
// uninstallation that was killed can be completed. The removal of the executable is what
// makes a running kubelet forget the driver (probe.go, handleWatchEvent); that of
// the directory says the same once more.
func (f files) removeDir(d driverDir) error {
	dir, err := lstat(d.path)
	if err != nil || dir == nil {
		return err
	}
	if err := f.removeFiles(append(d.dotFiles(), d.executable(current), d.record())); err != nil {
		return err
	}
	err = f.rmdir(d.path)
	if errors.Is(err, fs.ErrExist) { // what rmdir says of a directory with files
		return fmt.Errorf("%w: another process put files there meanwhile; delete it by hand, since a driver directory without driver makes the kubelet log errors", err)
	}
	return err
}

// unwrapPath removes the path from an error; the caller adds it.
func unwrapPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// both is errors.Join of two, without its code wherever the compiler inlines that.
func both(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return fmt.Errorf("%w\n%w", a, b)
}

// lstat returns nil if there is nothing at path.
func lstat(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	return info, ifThere(err)
}

// ifThere is err unless it says that something does not exist.
func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
