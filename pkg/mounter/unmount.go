package mounter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

const (
	// A mount is often busy for a moment, while a dying process closes files.
	busyWait = 2 * time.Second
	// What takes less than this may be slow.
	slowWait = time.Second
	// What takes longer than this waits for a server that does not answer.
	hungWait = 20 * time.Second
	// More mounts than this are not stacked on purpose.
	maxStacked = 1000
)

// Unmount removes everything that is mounted at t: stacked mounts one after
// the other, mounts below it first. What is not mounted is success, and so is
// a target that does not exist.
//
// A mount that is in use stays, and the error names who uses it. That is not
// so for a dead filesystem (ENOTCONN, ESTALE, EIO), nor for one that has not
// answered for 20 s or for half of the time that ctx leaves: those are forced
// off, since no operation on them can succeed. The health of a mount is checked only
// if it is busy.
func (m *Mounter) Unmount(ctx context.Context, t *Target) error {
	fail := func(err error) error { return &Error{Op: "unmount", Target: t.path, Err: err} }
	for range maxStacked {
		if ctx.Err() != nil {
			return fail(context.Cause(ctx))
		}
		err := m.unmountOnce(ctx, t)
		if isNotMounted(err) {
			return m.confirmUnmounted(t, err)
		}
		if err != nil {
			return fail(err)
		}
		m.log().Debug("unmounted", "target", t.path)
		if mounted, err := t.Mounted(); err == nil && !mounted {
			return nil // the usual case, and cheaper than to try once more
		}
	}
	return fail(errors.New("another process keeps mounting there"))
}

// Release unmounts t unless something is mounted inside or a process uses it; then the
// error is [ErrBusy]. Unlike [Mounter.Unmount] it unmounts nothing else and forces nothing
// off: it is for a mount that must not end before those inside it.
func (m *Mounter) Release(ctx context.Context, t *Target) error {
	late := time.After(busyWait)
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := unix.Unmount(t.handle(), unix.UMOUNT_NOFOLLOW)
		if isNotMounted(err) {
			return m.confirmUnmounted(t, err)
		}
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return &Error{Op: "unmount", Target: t.path, Err: err}
		}
		if err == nil {
			continue // until nothing is mounted: several may be stacked
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return &Error{Op: "unmount", Target: t.path, Err: context.Cause(ctx)}
		case <-late:
			return &Error{Op: "unmount", Target: t.path, Err: because(ErrBusy, "%v%s", err, describeUsers(t.tablePath()))}
		}
	}
}

// isNotMounted: EINVAL says that the path is no mount point.
func isNotMounted(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
}

// confirmUnmounted makes sure that the kernel meant that: it says the same of
// a mount that may not be removed (umount(2), EINVAL).
func (m *Mounter) confirmUnmounted(t *Target, why error) error {
	mounted, err := t.Mounted()
	if err != nil || !mounted {
		return err
	}
	return &Error{Op: "unmount", Target: t.path, Err: fmt.Errorf("the kernel does not allow it: the mount belongs to another mount namespace, or was made just now (%w)", why)}
}

func (m *Mounter) unmountOnce(ctx context.Context, t *Target) error {
	limit := patience(ctx)
	late := time.After(min(busyWait, limit))
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err := t.within(ctx, limit, func(path string) error { return unix.Unmount(path, unix.UMOUNT_NOFOLLOW) })
		if errors.Is(err, ErrSilent) {
			return m.force(ctx, t, limit, err)
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		path := t.tablePath()
		switch err := within(ctx, limit, func() error { return unmountBelow(path) }); {
		case err == nil:
			continue // there was something, and it is gone
		case errors.Is(err, ErrSilent):
			return m.force(ctx, t, limit, err)
		case !errors.Is(err, unix.EBUSY):
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late:
			return m.giveUp(ctx, t, limit)
		}
	}
}

// patience is how long to wait for one system call: so long that there is time
// left for another way, but not so short that what is only slow would be
// forced. The end of ctx is the end in any case.
func patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(slowWait, min(hungWait, time.Until(deadline)/2))
	}
	return hungWait
}

// within runs a system call that may hang. If it does, ErrSilent comes back and
// the goroutine stays until the call is done, or the process is.
func within(ctx context.Context, limit time.Duration, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return ErrSilent
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// within is for system calls on the target. They get a descriptor of their own:
// one that comes back late must not meet with another file under the number of
// a target that was closed.
func (t *Target) within(ctx context.Context, limit time.Duration, call func(path string) error) error {
	parent, err := unix.FcntlInt(t.parent.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", parent, t.name)
	return within(ctx, limit, func() error {
		defer unix.Close(parent)
		return call(path)
	})
}

// giveUp is for a mount that stays busy: one that is healthy stays, and one that is
// dead or hangs is removed.
func (m *Mounter) giveUp(ctx context.Context, t *Target, limit time.Duration) error {
	if err := t.Health(ctx, limit); err != nil {
		return m.force(ctx, t, limit, err)
	}
	return because(ErrBusy, "%v%s", unix.EBUSY, describeUsers(t.tablePath()))
}

// Health returns why what is mounted at t cannot be used: its server or device is
// gone (ENOTCONN, ESTALE, EIO, …), or, with [ErrSilent], does not answer within
// limit. A question that is not answered ends with the process.
func (t *Target) Health(ctx context.Context, limit time.Duration) error {
	err := t.within(ctx, limit, func(path string) error {
		_, err := Statfs(path)
		return err
	})
	if errors.Is(err, ErrSilent) || mountutils.IsCorruptedMnt(err) {
		return err
	}
	return nil
}

// Statfs asks the filesystem at path how large it is, for as long as that takes.
// The error is [ErrSilent] where a filesystem says that its server did not answer:
// soft mounts of NFS and SMB.
func Statfs(path string) (bytes int64, err error) {
	var fs unix.Statfs_t
	err = unix.Statfs(path, &fs)
	if errno, ok := errors.AsType[unix.Errno](err); ok && (errno.Timeout() || errno == unix.EHOSTDOWN) {
		return 0, fmt.Errorf("%w (%w)", ErrSilent, err)
	}
	return int64(fs.Blocks) * fs.Frsize, err
}

// force takes a mount out of the tree, and whatever is mounted below it. If that
// is all there is of its filesystem, it tells that not to wait for a server any
// more.
func (m *Mounter) force(ctx context.Context, t *Target, limit time.Duration, why error) error {
	flags := unix.MNT_DETACH | unix.UMOUNT_NOFOLLOW
	if t.holdsAll() {
		flags |= unix.MNT_FORCE
	}
	m.log().Warn("forcing a mount off that is dead or hangs", "target", t.path, "error", why, "abort", flags&unix.MNT_FORCE != 0)
	err := t.within(ctx, limit, func(path string) error { return unix.Unmount(path, flags) })
	if errors.Is(err, ErrSilent) {
		return fmt.Errorf("%w, not even when it is forced", err)
	}
	return err
}

// holdsAll reports whether the filesystem at t is mounted nowhere but at t and
// below. MNT_FORCE aborts what is under way on the filesystem, whichever of its
// mounts it came by: the RPCs of NFS (fs/nfs/super.c, nfs_umount_begin), the
// connection of FUSE for good (fs/fuse/inode.c, fuse_umount_begin; Linux 6.12).
// What the tables do not tell is no.
func (t *Target) holdsAll() bool {
	top, err := t.topMount()
	if err != nil || top == nil {
		return false
	}
	for _, table := range mountTables() {
		elsewhere, err := MountsIn(table, func(i *Info) (skip, stop bool) {
			here := i.Mountpoint == top.Mountpoint || strings.HasPrefix(i.Mountpoint, top.Mountpoint+"/")
			return here || i.Major != top.Major || i.Minor != top.Minor, false
		})
		if err != nil || len(elsewhere) > 0 {
			return false
		}
	}
	return true
}

// unmountBelow removes what is mounted below path, the deepest first: the
// target of an unmount is about to go, and with it all that others mounted
// inside. EBUSY: there was nothing that could be removed.
func unmountBelow(path string) error {
	infos, err := Mounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return err
	}
	result := error(unix.EBUSY)
	for _, i := range slices.Backward(infos) {
		if i.Mountpoint != path && unix.Unmount(i.Mountpoint, unix.UMOUNT_NOFOLLOW) == nil {
			result = nil
		}
	}
	return result
}
