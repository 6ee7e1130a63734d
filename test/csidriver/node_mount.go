package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// releaseWait is how long a disk may stay in use after it was unmounted: the
// kernel lets go of it a little later.
const releaseWait = 10 * time.Second

// anywhere: the store's paths are this driver's own.
func anywhere() mounter.Roots { return mounter.Roots{Below: []string{mounter.Anywhere}} }

// openTarget opens a mount point; nil if there cannot be one, since what is
// above it is gone.
func openTarget(path string) (*mounter.Target, error) {
	t, err := mounter.OpenTarget("", path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return t, err
}

// mountDisk mounts a volume's disk, formatted if it is empty and grown if
// that is due.
func (n node) mountDisk(ctx context.Context, a *admitted, t *mounter.Target) error {
	if n.Directories {
		return n.bindDirectory(ctx, a, t)
	}
	image, err := n.mounter.OpenImage(ctx, n.store.image(a.ID), 0, anywhere())
	if err != nil {
		return err
	}
	defer image.Close()
	loop, err := n.mounter.AttachImage(ctx, image)
	if err != nil {
		return err
	}
	// The mount keeps the device from here on, or nothing does.
	defer loop.Close()
	if a.GrowFilesystem && !a.readOnly {
		if err := n.growUnmounted(ctx, a, loop.Device, t); err != nil {
			return err
		}
	}
	disk := mounter.Disk{Device: loop.Device, FSType: a.FSType, Options: a.MountFlags, ReadOnly: a.readOnly}
	return whileBusy(ctx, func() error { return n.mounter.MountDisk(ctx, disk, t, n.group(ctx, a.capability, a.readOnly)) })
}

// whileBusy tries again while something has the disk: the mkfs of a driver
// that was killed may take a moment to die, too.
func whileBusy(ctx context.Context, do func() error) error {
	for start := time.Now(); ; {
		err := do()
		if !errors.Is(err, mounter.ErrBusy) || time.Since(start) > releaseWait {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// growUnmounted lets the filesystem follow a disk that has grown while no
// node had it.
func (n node) growUnmounted(ctx context.Context, a *admitted, device string, t *mounter.Target) error {
	fsType, err := n.mounter.Probe(ctx, device)
	if err != nil {
		return err
	}
	if fsType != "" {
		err := n.mounter.GrowFilesystem(ctx, device, fsType, t)
		if errors.Is(err, mounter.ErrBusy) {
			return nil // mounted elsewhere: NodeExpandVolume will do it
		}
		if err != nil {
			return err
		}
	}
	a.GrowFilesystem = false
	return n.store.putVolume(a.volumeRecord)
}

// group gives a volume's files to the caller's group; nil if there is none.
func (n node) group(ctx context.Context, c capability, readOnly bool) func(*os.File) error {
	if c.MountGroup == "" || readOnly {
		return nil
	}
	return func(root *os.File) error {
		gid, err := strconv.Atoi(c.MountGroup)
		if err != nil || gid < 0 {
			return status.Errorf(codes.InvalidArgument, "volume_mount_group %q is no number of a group", c.MountGroup)
		}
		return n.mounter.SetGroup(ctx, root, gid)
	}
}

// unmountDisk removes the mount of a volume at path, and waits for the disk
// to be free if that was the last one. What is not mounted is done; what is
// another volume's stays.
func (n node) unmountDisk(ctx context.Context, id, path string) error {
	t, err := openTarget(path)
	if err != nil || t == nil {
		return err
	}
	defer t.Close()
	if n.Directories && n.isDirectoryOf(id, path) {
		return n.mounter.Unmount(ctx, t) // without the mount table, which may be long
	}
	info, err := t.Info()
	if err != nil || info == nil {
		return err
	}
	if !n.isVolume(id, info) {
		return status.Errorf(codes.FailedPrecondition, "what is mounted at %s is not volume %s but %s; it stays", path, id, mounter.Describe(info))
	}
	backing := mounter.BackingFile(info.Source)
	if err := n.mounter.Unmount(ctx, t); err != nil || n.Directories {
		return err
	}
	others, err := mounter.Mounts(func(i *mounter.Info) (skip, stop bool) { return i.Source != info.Source, i.Source == info.Source })
	if err != nil || len(others) > 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWait)
	defer cancel()
	return mounter.WaitDetached(ctx, info.Source, backing)
}

// isVolume reports whether what is mounted is a volume. The kernel marks an
// image that was deleted meanwhile.
func (d *Driver) isVolume(id string, info *mounter.Info) bool {
	if d.Directories {
		return d.isDirectoryOf(id, info.Mountpoint)
	}
	image := d.store.image(id)
	return strings.TrimSuffix(mounter.BackingFile(info.Source), " (deleted)") == image || isBehind(image, info.Source)
}

// isBehind compares inode numbers, not names: if a driver in a deleted container has
// attached the image, the kernel has a name that no longer exists.
func isBehind(image, device string) bool {
	var st unix.Stat_t
	if unix.Stat(image, &st) != nil {
		return false
	}
	f, err := os.Open(device)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	return err == nil && info.Device == st.Dev && info.Inode == st.Ino
}

// isAt makes sure that what is mounted at path is the volume. It reads the
// mount table, so it is for a call that was made before.
func (n node) isAt(id, path string) error {
	info, err := mountAt(path)
	if err != nil {
		return err
	}
	if info == nil || !n.isVolume(id, info) {
		return status.Errorf(codes.Internal, "what is mounted at %s is not volume %s", path, id)
	}
	return nil
}

// mountAt returns what is mounted at path, or nil.
func mountAt(path string) (*mounter.Info, error) {
	t, err := openTarget(path)
	if err != nil || t == nil {
		return nil, err
	}
	defer t.Close()
	return t.Info()
}

// attachedTo returns the loop device that a volume's image is attached to on
// this machine, or "".
func (d *Driver) attachedTo(ctx context.Context, id string) (string, error) {
	if d.Directories {
		return d.boundAt(id)
	}
	image, err := d.mounter.OpenImage(ctx, d.store.image(id), 0, anywhere())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer image.Close()
	// A device that is being let go of is no use.
	for tries := 0; ; tries++ {
		device, err := d.mounter.AttachedTo(image)
		if err != nil || device == "" || tries == 10 {
			return device, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// bindOptions are those mount flags that mean something for a bind mount; the
// others were for the filesystem when it was staged.
func bindOptions(flags []string, readOnly bool) []string {
	known := []string{"ro", "nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "strictatime", "nosymfollow"}
	var options []string
	for _, f := range flags {
		if slices.Contains(known, f) {
			options = append(options, f)
		}
	}
	if readOnly {
		options = append(options, "ro")
	}
	return options
}
