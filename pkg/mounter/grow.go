package mounter

import (
	"context"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// GrowFilesystem makes the filesystem on a block device as large as the
// device. If it is not mounted at t, ext4 grows by itself; xfs and btrfs, which
// grow only while mounted, and ext4 that is mounted elsewhere, are mounted at t
// for as long as that takes, in a private mount namespace.
func (m *Mounter) GrowFilesystem(ctx context.Context, device, fsType string, t *Target) error {
	mounted, err := t.Mounted()
	if err != nil {
		return err
	}
	switch {
	case mounted:
		err = m.resizeMounted(ctx, device, fsType, t)
	case isExt(fsType) && m.released(ctx, device):
		if err = m.checkExt(ctx, device); err == nil {
			resizing.set(device)
			if err = m.resize(ctx, device, t); err == nil {
				resizing.clear(device)
			}
		}
	default:
		err = inPrivateNamespace(func() error {
			// Opened again: t leads into the namespace that was left.
			here, err := OpenTarget("", t.path)
			if err != nil {
				return err
			}
			defer here.Close()
			if err := m.mountSource(ctx, Disk{Device: device, FSType: fsType}.source(), here, nil); err != nil {
				return err
			}
			defer m.takeBack(here) // at once, not when the thread has ended
			return m.resizeMounted(ctx, device, fsType, here)
		})
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return &Error{Op: "grow filesystem", Source: deviceName(device), Target: t.path, FSType: fsType, Err: err}
	}
	m.log().Debug("grew filesystem", "device", device, "fsType", fsType)
	return nil
}

// resize has mount-utils call the program that grows what is on the device.
func (m *Mounter) resize(ctx context.Context, device string, t *Target) error {
	run := commander{ctx: ctx, m: m, failed: new(failure)}
	_, err := mountutils.NewResizeFs(run).Resize(device, t.path)
	if err != nil {
		return run.why(err) // what mount-utils makes of it is no good to read
	}
	return nil
}

func (m *Mounter) resizeMounted(ctx context.Context, device, fsType string, t *Target) error {
	err := m.resize(ctx, device, t)
	if err != nil && isExt(fsType) && !mayResize() {
		return fmt.Errorf("%s grows while it is mounted only for processes with CAP_SYS_RESOURCE, which this one lacks; give it to the kubelet, or grow the volume while no pod uses it: %w", fsType, err)
	}
	return err
}

// checkExt runs the check that resize2fs(8) wants before it touches a
// filesystem that is not mounted. Exit status 1 is "errors corrected".
func (m *Mounter) checkExt(ctx context.Context, device string) error {
	if err := m.mendExt(ctx, device); err != nil {
		return err
	}
	c := commander{ctx: ctx, m: m}
	out, err := c.Command("e2fsck", "-f", "-p", device).CombinedOutput()
	if exitStatus(err) == 1 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("e2fsck: %w", withOutput(err, out))
	}
	return nil
}

// inPrivateNamespace runs do on a thread with a mount namespace of its own,
// which is never used again: the namespace goes with the thread, and with the
// namespace all that was mounted in it. Children of do see the same. What
// others unmount meanwhile is unmounted there too, so nothing is kept busy.
func inPrivateNamespace(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread of a process does not end with its goroutine; it
			// would keep the namespace, and with it every mount of the node.
			// While it is held here another one is taken.
			defer runtime.UnlockOSThread()
			done <- inPrivateNamespace(do)
			return
		}
		// Never unlocked: the thread ends here.
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
		}
		if err != nil {
			done <- os.NewSyscallError("unshare mount namespace", err)
			return
		}
		done <- do()
	}()
	return <-done
}

// mayResize reports whether this process has the capability that ext4 wants
// for growing online (fs/ext4/resize.c, ext4_resize_begin).
func mayResize() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// Grow makes the image size bytes long, and the loop device that shows it.
// One that is as long already stays as it is; nothing ever becomes shorter.
func (m *Mounter) Grow(ctx context.Context, image *Image, size int64) error {
	fail := func(err error) error { return &Error{Op: "grow image", Source: image.path, Err: err} }
	// Two at a time could shrink it: one looks, the other grows, the first
	// sets the smaller size. The lock is another one than a loop device has.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Len: 1}
	if !image.ReadOnly {
		err := poll(ctx, func() error { return unix.FcntlFlock(image.f.Fd(), unix.F_OFD_SETLK, &lock) })
		if err != nil && !lacksLocks(err) {
			return fail(err)
		}
		lock.Type = unix.F_UNLCK
		defer func() { _ = unix.FcntlFlock(image.f.Fd(), unix.F_OFD_SETLK, &lock) }()
	}
	now, err := image.Size()
	if err != nil {
		return fail(err)
	}
	if now < size {
		if image.ReadOnly {
			return fail(because(ErrReadOnly, "the file cannot be written to"))
		}
		if err := requireRoom(int(image.f.Fd()), size); err != nil {
			return fail(err)
		}
		if err := fill(image.f, size); err != nil {
			return fail(err)
		}
		m.log().Debug("grew image", "image", image.path, "from", now, "to", size)
	}
	l, err := findLoop(image)
	if err != nil || l == nil {
		return err
	}
	defer l.Close()
	if err := unix.IoctlSetInt(int(l.f.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fail(fmt.Errorf("tell %s of the new size: %w", l.Device, err))
	}
	return nil
}
