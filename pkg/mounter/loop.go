package mounter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Loop is a loop device with an image behind it, held open. While it is
// open or mounted the image stays attached; after that it goes by itself
// (LO_FLAGS_AUTOCLEAR), whatever became of the process.
type Loop struct {
	// Device is the path of the loop device.
	Device string
	// ReadOnly says that the image could only be attached read-only.
	ReadOnly bool

	f *os.File
}

// Close lets go of the loop device.
func (l *Loop) Close() error { return l.f.Close() }

// AttachImage attaches an image to a loop device, the one that it is attached
// to already if there is one: one image must never be behind two devices,
// which would know nothing of each other's writes. Direct I/O is used where
// the filesystem under the image can do it.
//
// The kernel keeps a flock(2) on the image while it is attached. On storage
// that several nodes share and that honours such locks (NFS, CephFS) it
// refuses the image to all nodes but one, and ends when that node dies.
//
// Two calls for one image at a time would both find no loop device; callers
// hold [LockName] of [Image.Key].
func (m *Mounter) AttachImage(ctx context.Context, image *Image) (*Loop, error) {
	fail := func(err error) (*Loop, error) {
		return nil, &Error{Op: "attach image", Source: image.path, Err: err}
	}
	for ctx.Err() == nil {
		found, err := findLoop(image)
		if err != nil {
			return fail(err)
		}
		if found != nil {
			if err := m.adopt(found, image); err != nil {
				found.Close()
				return fail(err)
			}
			return found, nil
		}
		l, err := m.attachFree(ctx, image)
		if errors.Is(err, unix.EBUSY) && !errors.Is(err, ErrBusy) {
			continue // the kernel says so, not we: another process took this device first
		}
		if err != nil {
			return fail(err)
		}
		return l, nil
	}
	return fail(context.Cause(ctx))
}

// findLoop returns the loop device that the image is attached to, open, or
// nil. The image is compared by device and inode: paths differ between mount
// namespaces and over time.
func findLoop(image *Image) (*Loop, error) {
	var found *Loop
	err := eachLoop(func(device string, f *os.File, info *unix.LoopInfo64) (keep bool) {
		if keep = info.Device == image.dev && info.Inode == image.inode; keep {
			found = &Loop{Device: device, ReadOnly: info.Flags&unix.LO_FLAGS_READ_ONLY != 0, f: f}
		}
		return keep
	})
	return found, err
}

// attachedLoops tells what all loop devices show, by their names.
func attachedLoops() (map[string]*unix.LoopInfo64, error) {
	loops := map[string]*unix.LoopInfo64{}
	err := eachLoop(func(device string, _ *os.File, info *unix.LoopInfo64) bool {
		loops[device] = info
		return false
	})
	return loops, err
}

// eachLoop opens one loop device that has an image after the other, until one is kept.
func eachLoop(look func(device string, f *os.File, info *unix.LoopInfo64) (keep bool)) error {
	attached, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return err
	}
	for _, dir := range attached {
		device := "/dev/" + filepath.Base(filepath.Dir(dir))
		f, info, err := openLoop(device)
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
			continue // detached in the meantime
		}
		if err != nil {
			return fmt.Errorf("cannot tell what is attached to %s: %w", device, err)
		}
		if look(device, f, info) {
			return nil
		}
		f.Close()
	}
	return nil
}

// AttachedTo returns the loop device that an image is attached to, or "".
func (m *Mounter) AttachedTo(image *Image) (string, error) {
	l, err := findLoop(image)
	if err != nil || l == nil {
		return "", err
	}
	return l.Device, l.Close()
}

// openLoop opens a loop device that has an image; open, it keeps it. It opens
// for reading only, also where it is going to be changed: who closes a device
// that was open for writing has udev look at it, and kernels may refuse to
// open a mounted device for writing, or to mount one that is open so
// (CONFIG_BLK_DEV_WRITE_MOUNTED).
func openLoop(device string) (*os.File, *unix.LoopInfo64, error) {
	f, err := os.Open(device)
	if errors.Is(err, fs.ErrNotExist) {
		n, convErr := strconv.Atoi(strings.TrimPrefix(device, "/dev/loop"))
		if err = firstError(convErr, makeNode(device, n)); err == nil {
			f, err = os.Open(device)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// makeNode makes a device file: a /dev that is no devtmpfs, as in a container,
// lacks those of new loop devices.
func makeNode(device string, n int) error {
	err := unix.Mknod(device, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n))))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", device, err)
	}
	return nil
}

// adopt uses a loop device that is attached already: other mounts of the volume
// share it, or the process that attached it has not detached it. It gets the
// autoclear flag, so that the kernel detaches it.
func (m *Mounter) adopt(l *Loop, image *Image) error {
	info, err := unix.IoctlLoopGetStatus64(int(l.f.Fd()))
	if err != nil {
		return err
	}
	if info.Offset != 0 || info.Sizelimit != 0 {
		return because(ErrBusy, "%s shows only a part of it (offset %d, size limit %d); detach it with losetup -d %s", l.Device, info.Offset, info.Sizelimit, l.Device)
	}
	if l.ReadOnly && !image.ReadOnly {
		return because(ErrBusy, "it is attached read-only to %s by another program; detach it with losetup -d %s", l.Device, l.Device)
	}
	if info.Flags&unix.LO_FLAGS_AUTOCLEAR == 0 {
		m.log().Warn("adopting a loop device without autoclear", "device", l.Device, "image", image.path)
		info.Flags |= unix.LO_FLAGS_AUTOCLEAR
		if err := unix.IoctlLoopSetStatus64(int(l.f.Fd()), info); err != nil {
			return fmt.Errorf("set autoclear on %s: %w", l.Device, err)
		}
	}
	return nil
}

// attachFree attaches the image to a free loop device. EBUSY: the device was
// taken in the meantime.
func (m *Mounter) attachFree(ctx context.Context, image *Image) (*Loop, error) {
	backing, err := lease(ctx, image)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	// The previous holder of the lock may have removed an image that it could not use.
	if !image.InPlace() {
		return nil, because(ErrBusy, "the file was removed or replaced in the meantime")
	}
	device, err := freeLoop()
	if err != nil {
		return nil, err
	}
	w, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if err := configureLoop(int(w.Fd()), backing, image); err != nil {
		return nil, fmt.Errorf("%s: %w", device, err)
	}
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	if !image.ReadOnly {
		// A write protection (blockdev --setro) outlives the image that the
		// device had before.
		_ = unix.IoctlSetPointerInt(int(w.Fd()), unix.BLKROSET, 0)
	}
	m.log().Debug("attached", "image", image.path, "device", device)
	return &Loop{Device: device, ReadOnly: image.ReadOnly, f: f}, nil
}

// leaseWait is how long the lock of an image that is just being detached may
// outlive its loop device.
const leaseWait = 3 * time.Second

// lease opens the image a second time, for the loop device. That keeps the file open
// and with it the lock that is taken here: exclusive for a device that can write,
// shared for one that cannot.
func lease(ctx context.Context, image *Image) (*os.File, error) {
	mode, how := os.O_RDWR, unix.LOCK_EX
	if image.ReadOnly {
		mode, how = os.O_RDONLY, unix.LOCK_SH
	}
	f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(image.f.Fd())), mode, 0)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	err = poll(ctx, func() error { return unix.Flock(int(f.Fd()), how|unix.LOCK_NB) })
	if errors.Is(err, ErrBusy) {
		err = because(ErrBusy, "it is locked: another node that shares its storage has it attached, or a program on this node uses it (lslocks shows which)")
	}
	if err != nil && !lacksLocks(err) {
		f.Close()
		return nil, err
	}
	return f, nil
}

// freeLoop returns a loop device that is not in use; the kernel makes one if
// all are.
func freeLoop() (string, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("no loop devices on this node (is the module loop loaded?): %w", err)
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("get a free loop device: %w", err)
	}
	device := "/dev/loop" + strconv.Itoa(n)
	return device, makeNode(device, n)
}

func configureLoop(fd int, backing *os.File, image *Image) error {
	config := unix.LoopConfig{Fd: uint32(backing.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	if image.ReadOnly {
		config.Info.Flags |= unix.LO_FLAGS_READ_ONLY
	}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], image.path)
	err := unix.IoctlLoopConfigure(fd, &config)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return configureOldLoop(fd, backing, &config.Info)
	}
	return err
}

// configureOldLoop does in three calls what LOOP_CONFIGURE (Linux 5.8) does
// in one.
func configureOldLoop(fd int, backing *os.File, info *unix.LoopInfo64) error {
	if err := unix.IoctlSetInt(fd, unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		return err
	}
	info.Flags &= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(fd, info); err != nil {
		_ = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
		return err
	}
	_ = unix.IoctlSetInt(fd, unix.LOOP_SET_DIRECT_IO, 1) // if it can
	return nil
}

// WaitDetached waits until the device that was mounted at a place that has
// been unmounted is free, since the last reference goes a little later than
// the mount, and says who has it if that does not happen: a mount in another
// mount namespace keeps a filesystem alive that cannot be seen from here.
// image is the file that was behind it ([BackingFile]); "" if it is no loop
// device.
func WaitDetached(ctx context.Context, device, image string) error {
	// Do not open a loop device: it may have another image by now. If it has no
	// autoclear flag, wait for its filesystem only.
	held := func() bool { return BackingFile(device) == image && (isAutoclear(device) || isHeld(device)) }
	if image == "" {
		held = func() bool { return isHeld(device) }
	}
	for held() {
		select {
		case <-ctx.Done():
			return &Error{Op: "release", Source: deviceName(device), Err: because(ErrBusy, "it is still in use, perhaps by a mount in another mount namespace (a container that mounts the host's directories); find it with: grep -l '%s ' /proc/[0-9]*/mountinfo", device)}
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// isAutoclear reports whether a loop device is detached with its last user.
func isAutoclear(device string) bool {
	b, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/loop/autoclear")
	return err == nil && strings.TrimSpace(string(b)) == "1"
}

// isHeld reports whether a filesystem or another exclusive user has a block
// device.
func isHeld(device string) bool {
	f, err := os.OpenFile(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, unix.EBUSY)
}

// BackingFile returns the image behind a loop device, or "".
func BackingFile(device string) string {
	name := filepath.Base(device)
	if !strings.HasPrefix(name, "loop") {
		return ""
	}
	b, err := os.ReadFile("/sys/block/" + name + "/loop/backing_file")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// deviceName is a device for messages, with the image that a loop device
// shows: the device often no longer exists when they are read.
func deviceName(device string) string {
	if image := BackingFile(device); image != "" && strings.HasPrefix(device, "/dev/") {
		return device + " (" + image + ")"
	}
	return device
}
