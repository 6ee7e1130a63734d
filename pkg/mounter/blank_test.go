package mounter_test

import (
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// What a program wrote to a block device of another tenant, without any signature, was
// formatted over (security.md, F1).
func TestDiskNotBlank(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	var m mounter.Mounter
	d, target := partitioned(t), newTarget(t)
	disk := mounter.Disk{Device: d.partition, FSType: "ext4"}
	const size = 32 * testenv.MiB
	for _, at := range []int64{0, 5000, testenv.MiB - 1, 8*testenv.MiB - 1, size / 2, size - 3*testenv.MiB/2, size - 1} {
		writeAt(t, d.partition, at, []byte("x"))
		before := hash(t, d.partition)
		requireError(t, m.MountDisk(t.Context(), disk, target, nil), mounter.ErrWrongFilesystem, d.partition, "offset "+strconv.FormatInt(at, 10), "blkdiscard")
		if hash(t, d.partition) != before {
			t.Errorf("a disk with a byte at %d was written to", at)
		}
		writeAt(t, d.partition, at, []byte{0})
	}
	if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
		t.Fatal(err)
	}
	mustUnmount(t, target)
}

// What a mkfs has left that was ended is no data, for as long as no other program can have
// been at work on the disk.
func TestDiskFormatIsRepeated(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	d, target := partitioned(t), newTarget(t)
	disk := mounter.Disk{Device: d.partition, FSType: "ext4"}
	ended := mounter.Mounter{Programs: fakeProgram(t, "mkfs.ext4", `for device; do :; done; echo half | dd of="$device" bs=1 seek=5000 conv=notrunc; exit 1`)}
	var m mounter.Mounter
	requireError(t, ended.MountDisk(t.Context(), disk, target, nil), nil, "mkfs.ext4")
	const attribute = "trusted.flexdriver.formatting"
	old := strconv.FormatInt(time.Now().Add(-2*time.Hour).Unix(), 10)
	now := make([]byte, 32)
	n, err := unix.Getxattr(d.partition, attribute, now)
	if err == nil {
		err = unix.Setxattr(d.partition, attribute, []byte(old), 0)
	}
	if err != nil {
		t.Skip("no extended attributes of device nodes: ", err)
	}
	requireError(t, m.MountDisk(t.Context(), disk, target, nil), mounter.ErrWrongFilesystem, "offset 5000")
	if err := unix.Setxattr(d.partition, attribute, now[:n], 0); err != nil {
		t.Fatal(err)
	}
	if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
		t.Fatal(err)
	}
	mustUnmount(t, target)
	if _, err := unix.Getxattr(d.partition, attribute, nil); err != unix.ENODATA {
		t.Errorf("the mark stays: %v", err)
	}
}
