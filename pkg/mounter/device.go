package mounter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A BlockDevice is a block device, open. While it is, the kernel gives its
// number to no other.
type BlockDevice struct {
	// Path is that of the device node, links resolved.
	Path string

	f    *os.File
	rdev uint64
}

// OpenDevice opens a block device by a name below one of the roots, or that is one. The
// directories on the way must be root's and no links; the name itself may be a
// link, as udev makes them.
func OpenDevice(name string, roots []string) (*BlockDevice, error) {
	fail := func(err error) (*BlockDevice, error) {
		return nil, &Error{Op: "open device", Source: name, Err: err}
	}
	if err := CheckPath(name); err != nil {
		return fail(err)
	}
	if slices.Contains(roots, name) {
		roots = []string{filepath.Dir(name)}
	}
	dir, err := openRootOnly(filepath.Dir(name), roots)
	if err != nil {
		return fail(err)
	}
	defer dir.Close()
	// Only looked at so far: to open what is no block device can hang, or have
	// effects.
	at := fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(name))
	found, err := os.OpenFile(at, unix.O_PATH, 0)
	if err != nil {
		return fail(&fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)})
	}
	defer found.Close()
	d, err := openFound(found)
	if err != nil {
		return fail(err)
	}
	if isAutoclear(d.Path) {
		d.Close()
		return fail(because(ErrUnsafePath, "%s is a loop device that ends with its last user, so the image behind it (%s) is what is to be named, with the option image", d.Path, BackingFile(d.Path)))
	}
	return d, nil
}

func openFound(found *os.File) (*BlockDevice, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(found.Fd()), &st); err != nil {
		return nil, err
	}
	link := fmt.Sprintf("/proc/self/fd/%d", found.Fd())
	path, err := os.Readlink(link)
	if err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, because(ErrUnsafePath, "%s is no block device (a disk image is given with the option image, a directory with path)", path)
	}
	f, err := os.OpenFile(link, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.Unwrap(err)}
	}
	// The kernel's own name for it: who can write to the directory of another
	// node could replace that before a program opens it by its path.
	if own := "/dev/" + uevent(st.Rdev, "DEVNAME"); numberOf(own) == st.Rdev {
		path = own
	}
	return &BlockDevice{Path: path, f: f, rdev: st.Rdev}, nil
}

// Key names the device itself, whatever path leads to it; for [LockName].
func (d *BlockDevice) Key() string { return fmt.Sprintf("device %d", d.rdev) }

// Close closes the device.
func (d *BlockDevice) Close() error { return d.f.Close() }

// DeviceBelow returns a name of the block device at path, which is a node or a
// link, below one of the roots, or "".
func DeviceBelow(path string, roots []string) string {
	rdev := numberOf(path)
	if rdev == 0 {
		return ""
	}
	name := ""
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(at string, e fs.DirEntry, err error) error {
			switch {
			case err != nil, e.IsDir() && !sameFilesystem(root, at): // /dev/shm and the like
				return skip(e)
			case !e.IsDir() && e.Type()&(fs.ModeSymlink|fs.ModeDevice) != 0 && numberOf(at) == rdev:
				name = at
				return fs.SkipAll
			}
			return nil
		})
		if name != "" {
			break
		}
	}
	return name
}

func skip(e fs.DirEntry) error {
	if e != nil && e.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func sameFilesystem(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Lstat(b, &y) == nil && x.Dev == y.Dev
}

// numberOf is the number of the block device at path, or 0.
func numberOf(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0
	}
	return st.Rdev
}

// sysDir is where the kernel tells of a block device.
func sysDir(rdev uint64) string {
	return fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(rdev), unix.Minor(rdev))
}

// uevent is a value that the kernel tells udev of a block device, or "".
func uevent(rdev uint64, key string) string {
	text, _ := os.ReadFile(sysDir(rdev) + "/uevent")
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return value
		}
	}
	return ""
}

// DeviceSize is the size of a block device in bytes.
func DeviceSize(device string) (int64, error) {
	f, err := os.Open(device)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Seek(0, io.SeekEnd)
}
