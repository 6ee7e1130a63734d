package nodemounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// For a pod that it has forgotten, a kubelet deletes everything below pods/<uid> but volumes,
// up to a mount point (pkg/kubelet/kubelet_volumes.go, cleanupOrphanedPodDirs). Kubelets
// before 1.30, and all of them before Linux 5.8, know a mount point by its device number
// alone (mount-utils, IsLikelyNotMountPoint), and do not see a directory of the same
// filesystem that is bound there. So each target path is in a tmpfs of its own, its guard,
// which has another device number than the kubelet's directory and than any volume.
// See docs/adr/0020-a-guard-above-each-target-path.md.

const guardSize = 64 << 10

// Guard mounts the guard of a target path, unless it is mounted. The directory above the
// guard exists. A target that was published without a guard is brought behind one; each step
// of that can be repeated, and at no time is the volume unmounted altogether.
func (m *Mounts) Guard(ctx context.Context, target string) error {
	guard, spare := kubeletdir.Guard(target), kubeletdir.SpareTarget(target)
	guarded, err := m.Mounted(guard)
	if err != nil {
		return err
	}
	if !guarded {
		published, exposed, err := m.exposed(target)
		switch {
		case err != nil:
			return err
		case exposed:
			err = m.putAside(ctx, target, spare)
		case published: // another filesystem than the kubelet's stops each kubelet
			return nil
		}
		if err == nil {
			err = m.mountGuard(ctx, guard)
		}
		if err != nil {
			return err
		}
	}
	return m.bringBack(ctx, spare, target)
}

// exposed reports whether something is published at a target path without a guard, and
// whether it is of the filesystem of the directory above. That is seen in the mount table:
// the device number of stat(2) takes an answer of the filesystem.
func (m *Mounts) exposed(target string) (published, exposed bool, err error) {
	info, err := m.info(target)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info == nil {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	above, err := mounter.Mounts(func(i *mounter.Info) (skip, stop bool) { return i.ID != info.Parent, false })
	if err != nil || len(above) == 0 {
		return true, true, err // what is not known may be exposed
	}
	return true, above[0].Major == info.Major && above[0].Minor == info.Minor, nil
}

// putAside moves what is published at a target path to the spare path, which has a guard. It
// cannot be moved by one system call: the mount above is shared (mount(2), MS_MOVE).
func (m *Mounts) putAside(ctx context.Context, target, spare string) error {
	if err := m.mountGuard(ctx, kubeletdir.Guard(spare)); err != nil {
		return err
	}
	if err := m.Bind(ctx, target, spare, false); err != nil {
		return err
	}
	// Also if a process uses it: all of the volume is mounted at the spare path, and it is on
	// the node's own disk, which nothing detaches.
	if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// bringBack moves what was put aside to the target path, which has a guard by now.
func (m *Mounts) bringBack(ctx context.Context, spare, target string) error {
	aside, err := m.Mounted(spare)
	if err != nil {
		return err
	}
	if aside {
		there, err := m.Mounted(target)
		if err == nil && !there {
			err = m.Bind(ctx, spare, target, false)
		}
		if err != nil {
			return err
		}
	}
	return m.removeSpare(ctx, spare)
}

func (m *Mounts) removeSpare(ctx context.Context, spare string) error {
	if err := m.Unmount(ctx, spare); err != nil {
		return err
	}
	guard := kubeletdir.Guard(spare)
	if err := m.release(ctx, guard); err != nil {
		return err
	}
	_ = unix.Rmdir(spare)
	_ = unix.Rmdir(guard)
	return nil
}

func (m *Mounts) mountGuard(ctx context.Context, dir string) error {
	// A driver makes its target in the guard, and some write a file next to it. What is
	// written there goes with the guard.
	return m.mountMemory(ctx, dir, guardSize, "mode=0750", "nr_inodes=64", "nosuid", "nodev", "noexec")
}

// RemoveTarget unmounts what is left at a target path, then its guard, and removes the
// directories. The guard stays as long as anything is mounted in it.
func (m *Mounts) RemoveTarget(ctx context.Context, target string) error {
	if err := m.Unmount(ctx, target); err != nil {
		return err
	}
	if err := m.removeSpare(ctx, kubeletdir.SpareTarget(target)); err != nil {
		return err
	}
	if err := m.release(ctx, kubeletdir.Guard(target)); err != nil {
		return err
	}
	// What a driver of an earlier version mounted while the guard was being made is below it.
	if err := m.Unmount(ctx, target); err != nil {
		return err
	}
	kubeletdir.RemoveTarget(target, unix.Rmdir)
	return nil
}

// release unmounts a guard.
func (m *Mounts) release(ctx context.Context, guard string) error {
	t, err := m.open(guard)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	return m.mounter(ctx).Release(ctx, t)
}
