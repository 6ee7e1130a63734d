package mounter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// DefaultFSType is what an empty disk gets if no type is given, as in
// Kubernetes.
const DefaultFSType = "ext4"

// A Disk is a block device with a filesystem on it, or to be.
type Disk struct {
	// Device is the path of the block device.
	Device string
	// FSType is ext4, xfs, btrfs, …; "" takes what is there, or
	// [DefaultFSType] on an empty disk.
	FSType string
	// FSTypes, if not empty, are the types that an empty FSType may lead to. The
	// author of a pod may choose what is on a disk, and each filesystem is code of the
	// kernel that reads it.
	FSTypes []string
	// Options are mount options, those of the mount and of the filesystem.
	Options []string
	// ReadOnly mounts without writing to the disk: it is neither formatted
	// nor checked, and a filesystem that is not mounted yet stays read-only.
	// What a filesystem does by itself to a journal that a crash left is
	// another matter; a device that is read-only prevents it.
	ReadOnly bool
	// Shares says of a mount point whether a mount of this disk may be there
	// already. If it is set, a disk with any other use is refused: one that is
	// mounted elsewhere, or that a partition, LVM, RAID, swap, … has. Nil
	// shares the disk with whatever has it mounted.
	Shares func(mountpoint string) bool
}

// MountDisk mounts a disk at t. An empty disk is formatted; for what empty
// means see [Mounter.Probe]. A disk with another filesystem than was asked for
// is an error and stays as it is. A filesystem that no one has mounted is
// checked with fsck(8) first, as the kubelet does for its own volumes. A disk
// that is mounted already is shared, as far as [Disk.Shares] allows.
//
// prepare may be nil; it gets the root of the filesystem before the mount can
// be seen.
func (m *Mounter) MountDisk(ctx context.Context, d Disk, t *Target, prepare func(root *os.File) error) error {
	if d.ReadOnly {
		d.Options = append(slices.Clone(d.Options), "ro")
	}
	if err := d.CheckUse(ctx); err != nil {
		return err
	}
	if isHeld(d.Device) {
		err := m.mountHeld(ctx, d, t, prepare)
		ended := err != nil && (errors.Is(err, ErrBusy) || !isHeld(d.Device)) && m.released(ctx, d.Device)
		if !ended {
			return err
		}
		// The holder was no mount, and is gone: usually the mkfs or fsck of a call
		// that was killed. So this starts over.
	}
	found, err := m.Probe(ctx, d.Device)
	if err != nil {
		return err
	}
	if err := decide(&d, found); err != nil {
		return d.err("mount", t, err)
	}
	if found != "" {
		return m.mountFormatted(ctx, d, t, prepare)
	}
	if err := d.CheckUse(ctx); err != nil { // again: it took time to read the disk
		return err
	}
	if unfinishedXFS(d.Device) {
		m.log().Warn("starting over a mkfs.xfs that did not finish", "device", d.Device)
		if err := wipeStart(d.Device); err != nil {
			return err
		}
	}
	formatting.set(d.Device)
	return m.formatAndMount(ctx, d, t, true, prepare)
}

// mountFormatted mounts a disk that has its filesystem and is not in use.
func (m *Mounter) mountFormatted(ctx context.Context, d Disk, t *Target, prepare func(root *os.File) error) error {
	if isExt(d.FSType) && !d.ReadOnly {
		if err := m.mendExt(ctx, d.Device); err != nil {
			return err
		}
	}
	return m.formatAndMount(ctx, d, t, false, prepare)
}

// formatAndMount has mount-utils do what the kubelet does with its own disks.
// It looks at the disk a second time; a disk that had a filesystem is not
// formatted, whatever it finds then.
func (m *Mounter) formatAndMount(ctx context.Context, d Disk, t *Target, empty bool, prepare func(root *os.File) error) error {
	var mountErr error
	run := commander{ctx: ctx, m: m, failed: new(failure), fsType: d.FSType, keep: !empty}
	safe := mountutils.SafeFormatAndMount{
		Interface: mountStep{do: func() error {
			if !d.ReadOnly {
				// Before the first write to the filesystem: with a mark that is
				// left, its data would be taken for half a mkfs.
				formatting.clear(d.Device)
			}
			mountErr = m.mountSource(ctx, d.source(), t, prepare)
			return mountErr
		}},
		Exec: run,
	}
	err := safe.FormatAndMountSensitive(d.Device, t.path, d.FSType, d.Options, nil)
	var why mountutils.MountError
	switch {
	case mountErr != nil:
		return mountErr // with the cause that mount-utils turns into text
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return d.err("mount", t, context.Cause(ctx))
	case errors.As(err, &why) && why.Type == mountutils.FormatFailed:
		return d.err("format", t, run.why(err))
	case errors.As(err, &why) && why.Type == mountutils.HasFilesystemErrors:
		return d.err("check", t, fmt.Errorf("it has errors that fsck could not correct by itself; it stays unmounted until it is repaired (fsck.%s %s): %w", d.FSType, cmp.Or(BackingFile(d.Device), d.Device), run.why(err)))
	}
	return d.err("format, check and mount", t, err)
}

func (d Disk) source() source {
	return source{fsType: d.FSType, device: d.Device, options: parseOptions(d.Options), given: d.Options}
}

func (d Disk) err(op string, t *Target, err error) error { return d.source().err(op, t.path, err) }

// mountHeld mounts a disk that is in use: a filesystem of this type is
// shared; with any other holder the kernel refuses.
func (m *Mounter) mountHeld(ctx context.Context, d Disk, t *Target, prepare func(root *os.File) error) error {
	if err := d.requireShared(ctx); err != nil {
		return d.err("mount", t, err)
	}
	found := ""
	if d.FSType == "" {
		var err error
		if found, err = m.Probe(ctx, d.Device); err != nil {
			return err
		}
		if !d.takes(found) {
			return d.err("mount", t, d.notTaken(found))
		}
		d.FSType = found
	}
	if d.FSType != "" {
		err := m.mountSource(ctx, d.source(), t, prepare)
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if found, err = m.Probe(ctx, d.Device); err == nil && found != "" && found != d.FSType {
			return d.err("mount", t, wrongFilesystem(found, d.FSType))
		}
	}
	return d.err("mount", t, d.heldByOther())
}

// mountStep is the mount step of mount-utils' FormatAndMount, with a way of
// mounting of its own. The embedded nil interface stands for what
// FormatAndMount does not use.
type mountStep struct {
	mountutils.Interface
	do func() error
}

func (s mountStep) MountSensitive(_, _, _ string, _, _ []string) error { return s.do() }

// decide compares what is on the disk with what was asked for, and fills in
// the type of filesystem if none was.
func decide(d *Disk, found string) error {
	switch {
	case found == "" && d.ReadOnly:
		return because(ErrNotFormatted, "the disk is empty, and a read-only volume is never formatted; mount it read-write once")
	case found == "" && d.FSType == "":
		d.FSType = DefaultFSType
	case d.FSType == "":
		if !d.takes(found) {
			return d.notTaken(found)
		}
		d.FSType = found
	case found != "" && found != d.FSType:
		return wrongFilesystem(found, d.FSType)
	}
	if !IsFSType(d.FSType) {
		return because(ErrWrongFilesystem, "%q is no name of a filesystem", d.FSType)
	}
	if !d.ReadOnly && isWriteProtected(d.Device) {
		return because(ErrReadOnly, "the device cannot be written to; mount the volume read-only, or have the device made writable (blockdev --setrw)")
	}
	return nil
}

// takes reports whether a disk with this filesystem may be mounted where FSType
// does not say which.
func (d Disk) takes(found string) bool {
	return len(d.FSTypes) == 0 || found == "" || slices.Contains(d.FSTypes, found)
}

func (d Disk) notTaken(found string) error {
	return because(ErrWrongFilesystem, "the disk holds %s, and only %s are mounted; name another disk", found, strings.Join(d.FSTypes, ", "))
}

func wrongFilesystem(found, wanted string) error {
	return because(ErrWrongFilesystem, "the disk holds %s, not %s; it stays as it is: give fsType %s if that is the wanted volume, or wipe the disk (wipefs -a) if it really is to be formatted", found, wanted, found)
}

// isWriteProtected asks the block device (BLKROGET, blockdev --getro).
func isWriteProtected(device string) bool {
	f, err := os.Open(device)
	if err != nil {
		return false
	}
	defer f.Close()
	readOnly, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	return err == nil && readOnly != 0
}

// released waits until the device is free: right after an unmount the kernel may
// still hold it.
func (m *Mounter) released(ctx context.Context, device string) bool {
	ctx, cancel := context.WithTimeout(ctx, busyWait)
	defer cancel()
	return WaitDetached(ctx, device, "") == nil
}
