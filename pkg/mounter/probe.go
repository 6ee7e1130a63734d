package mounter

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

// Probe returns the type of the filesystem on a block device or image; "" if
// it is provably empty, and also if a mkfs.xfs was killed on it. Empty means
// that blkid(8) finds no filesystem, partition table or other signature, and
// that zeros can be read at both ends and at samples in between: blkid by itself says
// "nothing found" of a disk that it cannot read, and of raw data. Whatever else is found
// is an error.
func (m *Mounter) Probe(ctx context.Context, device string) (string, error) {
	fail := func(err error) (string, error) {
		return "", &Error{Op: "probe", Source: deviceName(device), Err: err}
	}
	run := commander{ctx: ctx, m: m, failed: new(failure)}
	found, err := (&mountutils.SafeFormatAndMount{Exec: run}).GetDiskFormat(device)
	switch {
	case ctx.Err() != nil:
		return fail(context.Cause(ctx))
	case exitStatus(err) == blkidAmbivalent:
		return fail(because(ErrWrongFilesystem, "it holds signatures that contradict each other (wipefs %s lists them); it is not touched", device))
	case err != nil:
		return fail(fmt.Errorf("cannot tell what is on it, so it is not touched: %w", run.why(err)))
	case found == "" && tornExt(device):
		return "ext4", nil // MountDisk and GrowFilesystem mend it
	case found == "":
		if err := checkBlank(device); err != nil {
			return fail(err)
		}
	case found == "xfs" && unfinishedXFS(device):
		return "", nil
	case strings.Contains(found, "partitions"): // how mount-utils calls them
		return fail(because(ErrWrongFilesystem, "it holds a partition table, and is not touched; a partition of a block device can be a volume, one of an image cannot (fdisk -l %s lists them)", cmp.Or(BackingFile(device), device)))
	case !isFilesystem(found):
		return fail(because(ErrWrongFilesystem, "it holds %s, which is no filesystem (wipefs %s lists the signatures); it is not touched", found, device))
	}
	return found, nil
}

// blkidAmbivalent is the exit status of blkid(8) for "several results".
const blkidAmbivalent = 8

// isFilesystem tells filesystems from what else blkid(8) calls a TYPE: parts
// of RAIDs, volume groups and pools, encryption, swap, caches, journals.
func isFilesystem(found string) bool {
	return IsFSType(found) && !strings.HasSuffix(found, "_member") &&
		!slices.Contains([]string{"swap", "swsuspend", "bcache", "drbd", "jbd", "ubi", "stratis", "ceph_bluestore"}, found)
}

// What is read of a device before it counts as empty. All that libblkid 2.42 knows has
// its signature at one of the ends: VMFS at 2 MiB, the second header of LUKS2 at up to
// 4 MiB, bcachefs in front of that; RAID, ZFS, GPT and DRBD in the last MiB, Promise's
// RAID 1.5 MiB from the end (libblkid/src/superblocks). A program that writes to the
// whole disk may leave both empty, so samples are read in between; the first of them is
// the second superblock of btrfs.
const (
	probeEnds    = 8 << 20
	probeSamples = 64
	sampleSize   = 4 << 10
	btrfsMirror  = 64 << 20
)

// A part of a device.
type part struct{ at, length int64 }

func probed(size int64) []part {
	parts := []part{{0, min(size, probeEnds)}, {max(0, size-probeEnds), min(size, probeEnds)}}
	if size < 2*probeEnds {
		return parts
	}
	if size > btrfsMirror+2*sampleSize {
		parts = append(parts, part{btrfsMirror, 2 * sampleSize})
	}
	for i := range int64(probeSamples) {
		parts = append(parts, part{size / probeSamples * i / sampleSize * sampleSize, sampleSize})
	}
	return parts
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

// FindByTag returns the block device with a tag (UUID, LABEL, PARTUUID,
// PARTLABEL), as blkid(8) finds it, or an error for which
// errors.Is(err, fs.ErrNotExist).
func (m *Mounter) FindByTag(ctx context.Context, tag, value string) (string, error) {
	out, err := commander{ctx: ctx, m: m}.Command("blkid", "-c", "/dev/null", "-o", "device", "-t", tag+"="+value).CombinedOutput()
	// The content of an image is its owner's choice, so a tag in it names nothing.
	// Nor does what is part of another device that shows it, a path of multipath for one.
	devices := slices.DeleteFunc(strings.Fields(string(out)), func(device string) bool {
		return isAutoclear(device) || family{numberOf(device): device}.holders() != ""
	})
	switch {
	case err == nil && len(devices) == 1:
		return devices[0], nil
	case err == nil && len(devices) > 1:
		return "", &Error{Op: "find device", Source: tag + "=" + value, Err: because(ErrBusy, "several have it (%s): a snapshot or a multipath device? give the path of one", strings.Join(devices, ", "))}
	}
	if err == nil || exitStatus(err) == 2 {
		err = &os.PathError{Op: "find", Path: tag + "=" + value, Err: os.ErrNotExist}
	}
	return "", &Error{Op: "find device", Source: tag + "=" + value, Err: err}
}

// IsFSType reports whether s can be the name of a filesystem, and is no option
// or path in its place.
func IsFSType(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-' {
			return false
		}
	}
	return s != "" && s[0] != '-' && s[0] != '.'
}
