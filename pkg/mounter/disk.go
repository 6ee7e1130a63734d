package mounter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// DefaultFSType is what an empty disk gets if nobody says otherwise, as in
// Kubernetes.
const DefaultFSType = "ext4"

// A Disk is a block device with a filesystem on it, or to be.
type Disk struct {
	// Device is the path of the block device.
	Device string
	// FSType is ext4, xfs, btrfs, …; "" takes what is there, or
	// [DefaultFSType] on an empty disk.
	FSType string
	// Options are mount options, those of the mount and of the filesystem.
	Options []string
	// MkfsOptions are arguments of mkfs.<FSType>.
	MkfsOptions []string
	// ReadOnly mounts without writing to the disk: it is neither formatted
	// nor checked, and a filesystem that is not mounted yet stays read-only.
	ReadOnly bool
}

// MountDisk mounts a disk at t. An empty disk is formatted; empty means that it can
// be read from end to end and that blkid(8) finds no filesystem, partition
// table or other signature. A disk with another filesystem than was asked for
// is an error and stays as it is. A filesystem that no one has mounted is
// checked with fsck(8) first, as the kubelet does for its own volumes. A disk
// that is mounted already, here or in another mount namespace, is shared.
//
// prepare may be nil; it gets the root of the filesystem before the mount can
// be seen.
func (m *Mounter) MountDisk(ctx context.Context, d Disk, t *Target, prepare func(root *os.File) error) error {
	if d.ReadOnly {
		d.Options = append(slices.Clone(d.Options), "ro")
	}
	fail := func(op string, err error) error {
		return &Error{Op: op, Source: d.Device, Target: t.path, FSType: d.FSType, Options: d.Options, Err: err}
	}
	if isHeld(d.Device) {
		return m.mountHeld(ctx, d, t, prepare)
	}
	found, err := m.Probe(ctx, d.Device)
	if err != nil {
		return err
	}
	if err := decide(&d, found); err != nil {
		return fail("mount", err)
	}
	if found == "" && unfinishedXFS(d.Device) {
		m.log().Warn("starting over a mkfs.xfs that did not finish", "device", d.Device)
		if err := wipeStart(d.Device); err != nil {
			return err
		}
	}
	var mountErr error
	safe := mountutils.SafeFormatAndMount{
		Interface: mountStep{do: func() error {
			mountErr = m.attach(d.source(), t, prepare)
			return mountErr
		}},
		Exec: commander{ctx: ctx, m: m},
	}
	err = safe.FormatAndMountSensitiveWithFormatOptions(d.Device, t.path, d.FSType, d.Options, nil, d.MkfsOptions)
	if mountErr != nil {
		return mountErr // with the cause that mount-utils turns into text
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail("format, check and mount", err)
	}
	return nil
}

func (d Disk) source() source {
	return source{fsType: d.FSType, device: d.Device, options: parseOptions(d.Options), given: d.Options}
}

// mountHeld mounts a disk that somebody has already: a filesystem of this
// type is shared; any other holder makes the kernel refuse.
func (m *Mounter) mountHeld(ctx context.Context, d Disk, t *Target, prepare func(root *os.File) error) error {
	if d.FSType == "" {
		found, err := m.Probe(ctx, d.Device)
		if err != nil {
			return err
		}
		d.FSType = found
	}
	err := m.attach(d.source(), t, prepare)
	if errors.Is(err, unix.EBUSY) {
		return &Error{
			Op: "mount", Source: d.Device, Target: t.path, FSType: d.FSType, Options: d.Options,
			Err: because(ErrBusy, "something other than a mounted %s has the device: a filesystem of another type, LVM, RAID, multipath or swap (lsblk and lsof %s show which): %v", d.FSType, d.Device, unix.EBUSY),
		}
	}
	return err
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
		d.FSType = found
	case found != "" && found != d.FSType:
		return because(ErrWrongFilesystem, "the disk holds %s, not %s; it stays as it is: give fsType %s if that is the wanted volume, or wipe the disk (wipefs -a) if it is really to be used anew", found, d.FSType, found)
	}
	if !isName(d.FSType) {
		return because(ErrWrongFilesystem, "%q is no name of a filesystem", d.FSType)
	}
	return nil
}

func isName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-' {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[0] != '.'
}

// Probe returns the type of the filesystem on a block device or image; "" if
// it is provably empty, and also if a mkfs.xfs was killed on it. A partition table or another signature is an
// error, and so is a device that cannot be read: blkid(8) by itself calls
// both of those "nothing found" in some cases.
func (m *Mounter) Probe(ctx context.Context, device string) (string, error) {
	fail := func(err error) (string, error) { return "", &Error{Op: "probe", Source: device, Err: err} }
	if err := checkReadable(device); err != nil {
		return fail(err)
	}
	found, err := (&mountutils.SafeFormatAndMount{Exec: commander{ctx: ctx, m: m}}).GetDiskFormat(device)
	if err != nil {
		return fail(fmt.Errorf("cannot tell what is on it, so it is not touched: %w (wipefs %s lists what was found)", err, device))
	}
	if found == "xfs" && unfinishedXFS(device) {
		return "", nil
	}
	if found != "" && !isFilesystem(found) {
		return fail(because(ErrWrongFilesystem, "it holds %s (wipefs %s lists them); it is not touched", found, device))
	}
	return found, nil
}

// isFilesystem tells the filesystems that blkid(8) finds from the rest: swap,
// members of arrays, encrypted disks ("crypto_LUKS") and partition tables.
func isFilesystem(found string) bool {
	switch found {
	case "swap", "swsuspend", "bcache", "drbd":
		return false
	}
	return isName(found) && !strings.HasSuffix(found, "_member")
}

// probeSpan is how much is read at both ends of a device: what all known
// signatures lie in.
const probeSpan = 1 << 20

func checkReadable(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size == 0 {
		return errors.New("the device has no size: no medium, or not attached")
	}
	buf := make([]byte, min(size, probeSpan))
	for _, at := range [...]int64{0, size - int64(len(buf))} {
		if _, err := f.ReadAt(buf, at); err != nil {
			return fmt.Errorf("cannot be read at offset %d: %w", at, err)
		}
	}
	return nil
}

// The superblock of XFS starts the device; mkfs.xfs sets sb_inprogress first
// and clears it last, and the kernel mounts no filesystem that has it set. So
// one that has it set never held any data (xfsprogs, mkfs/xfs_mkfs.c).
const (
	xfsMagic          = "XFSB"
	xfsInProgressByte = 126
)

func unfinishedXFS(device string) bool {
	f, err := os.Open(device)
	if err != nil {
		return false
	}
	defer f.Close()
	sb := make([]byte, 512)
	if _, err := f.ReadAt(sb, 0); err != nil {
		return false
	}
	return bytes.HasPrefix(sb, []byte(xfsMagic)) && sb[xfsInProgressByte] == 1
}

// wipeStart clears the first sector.
func wipeStart(device string) error {
	f, err := os.OpenFile(device, os.O_WRONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		return &Error{Op: "wipe", Source: device, Err: err}
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 512)); err != nil {
		return &Error{Op: "wipe", Source: device, Err: err}
	}
	return f.Sync()
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

// FindByTag returns the block device with a tag (UUID, LABEL, PARTUUID,
// PARTLABEL), as blkid(8) finds it, or an error for which
// errors.Is(err, fs.ErrNotExist).
func (m *Mounter) FindByTag(ctx context.Context, tag, value string) (string, error) {
	out, err := commander{ctx: ctx, m: m}.Command("blkid", "-c", "/dev/null", "-o", "device", "-t", tag+"="+value).CombinedOutput()
	devices := strings.Fields(string(out))
	switch {
	case err == nil && len(devices) == 1:
		return devices[0], nil
	case err == nil && len(devices) > 1:
		return "", &Error{Op: "find device", Source: tag + "=" + value, Err: because(ErrBusy, "several have it (%s): a snapshot or a multipath device? give the path of one", strings.Join(devices, ", "))}
	}
	var exit interface{ ExitStatus() int }
	if errors.As(err, &exit) && exit.ExitStatus() == 2 {
		err = &os.PathError{Op: "find", Path: tag + "=" + value, Err: os.ErrNotExist}
	}
	return "", &Error{Op: "find device", Source: tag + "=" + value, Err: err}
}
