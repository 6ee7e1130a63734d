package mounter_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const sector = 512

// mbr is a partition table with one Linux partition, or the one that protects
// a GPT.
func mbr(kind byte) []byte {
	b := make([]byte, sector)
	b[446+4] = kind
	binary.LittleEndian.PutUint32(b[446+8:], 1)     // first sector
	binary.LittleEndian.PutUint32(b[446+12:], 8191) // sectors
	b[510], b[511] = 0x55, 0xaa
	return b
}

// gpt is a partition table without partitions, for a disk of so many sectors.
func gpt(sectors uint64) []byte {
	entries := make([]byte, 128*128)
	h := make([]byte, sector)
	copy(h, "EFI PART")
	le := binary.LittleEndian
	le.PutUint32(h[8:], 0x10000)
	le.PutUint32(h[12:], 92)
	le.PutUint64(h[24:], 1)          // this header
	le.PutUint64(h[32:], sectors-1)  // the other one
	le.PutUint64(h[40:], 34)         // first usable
	le.PutUint64(h[48:], sectors-34) // last usable
	h[56] = 0x42                     // of the GUID
	le.PutUint64(h[72:], 2)          // entries
	le.PutUint32(h[80:], 128)
	le.PutUint32(h[84:], 128)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
	return append(append(mbr(0xee), h...), entries...)
}

// lvm is the label of a physical volume (lvm2, lib/format_text/layout.h).
func lvm() []byte {
	b := make([]byte, sector)
	le := binary.LittleEndian
	copy(b, "LABELONE")
	le.PutUint64(b[8:], 1)
	le.PutUint32(b[20:], 32)
	copy(b[24:], "LVM2 001")
	copy(b[32:], "abcdefghijklmnopqrstuvwxyz012345") // UUID
	le.PutUint32(b[16:], ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, b[20:]))
	return b
}

func luks() []byte {
	b := make([]byte, 592)
	copy(b, "LUKS\xba\xbe\x00\x01aes")
	copy(b[168:], "2fb4b2c4-3f0e-4f0d-9f6e-6d6b9f7a3c55")
	return b
}

// raid is a member of an array (md, version 1.2).
func raid() []byte {
	b := make([]byte, 4096)
	le := binary.LittleEndian
	le.PutUint32(b[0:], 0xa92b4efc)
	le.PutUint32(b[4:], 1)
	copy(b[16:], "0123456789abcdef")
	copy(b[32:], "host:array")
	le.PutUint64(b[144:], 8) // where it is itself, in sectors
	sum := uint64(0)
	for i := 0; i < 256; i += 4 {
		sum += uint64(le.Uint32(b[i:]))
	}
	le.PutUint32(b[216:], uint32(sum&0xffffffff+sum>>32))
	return b
}

// Nothing that has a signature is ever formatted or mounted, and all of it
// stays as it is.
func TestProbeFindsOther(t *testing.T) {
	testenv.Need(t, "ext4")
	const size = 16 * testenv.MiB
	write := func(at int64, data []byte) func(*testing.T, disk) {
		return func(t *testing.T, d disk) { writeAt(t, d.device, at, data) }
	}
	for name, tt := range map[string]struct {
		make func(t *testing.T, d disk)
		text string
	}{
		"MBR":     {write(0, mbr(0x83)), "a partition table"},
		"GPT":     {write(0, gpt(size/sector)), "a partition table"},
		"LVM":     {write(sector, lvm()), "LVM2_member"},
		"LUKS":    {write(0, luks()), "crypto_LUKS"},
		"RAID":    {write(8*sector, raid()), "linux_raid_member"},
		"swap":    {func(t *testing.T, d disk) { mustRun(t, "mkswap", d.device) }, "swap"},
		"journal": {func(t *testing.T, d disk) { mustRun(t, "mke2fs", "-O", "journal_dev", d.device) }, "jbd"},
		"ext4 with a partition table": {func(t *testing.T, d disk) {
			mustRun(t, "mkfs.ext4", "-q", d.device)
			writeAt(t, d.device, 0, mbr(0x83))
		}, "a partition table"},
	} {
		t.Run(name, func(t *testing.T) {
			d, target := newDisk(t, size), newTarget(t)
			tt.make(t, d)
			requireUntouched(t, d, target, tt.text)
		})
	}
	t.Run("two filesystems", func(t *testing.T) {
		testenv.Need(t, "xfs", "btrfs")
		d, other, target := formatted(t, "btrfs"), formatted(t, "xfs"), newTarget(t)
		head := make([]byte, 4096)
		f, err := os.Open(other.device)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.ReadFull(f, head); err != nil {
			t.Fatal(err)
		}
		writeAt(t, d.device, 0, head)
		requireUntouched(t, d, target, "contradict each other")
	})
}

func requireUntouched(t *testing.T, d disk, target *mounter.Target, text string) {
	t.Helper()
	before := hash(t, d.path)
	for _, disk := range []mounter.Disk{
		{FSType: "ext4"}, {FSType: "xfs"}, {FSType: "btrfs"}, {}, {ReadOnly: true}, {FSType: "ext4", ReadOnly: true},
	} {
		disk.Device = d.device
		eachWay(t, func(t *testing.T, m *mounter.Mounter) {
			err := m.MountDisk(t.Context(), disk, target, nil)
			requireError(t, err, mounter.ErrWrongFilesystem, "probe "+d.device, text, "not touched")
			requireMounts(t, target.Path(), 0)
		})
	}
	if hash(t, d.path) != before {
		t.Error("the disk was changed")
	}
}

func writeAt(t *testing.T, path string, at int64, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err := firstOf(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A disk that cannot be read at its start or end is not empty.
func TestProbeUnreadable(t *testing.T) {
	testenv.Need(t, "ext4", "btrfs")
	const size = 32 * testenv.MiB
	bad := map[string]int64{"start": 0, "superblock": 64 << 10, "later": 2 * testenv.MiB, "end": size - 4096}
	dir := mountDamaged(t, size, bad)
	for name, at := range bad {
		t.Run(name, func(t *testing.T) {
			d, target := attachDisk(t, filepath.Join(dir, name)), newTarget(t)
			requireReadError(t, d.device, at)
			var m mounter.Mounter
			for _, fsType := range []string{"ext4", ""} {
				err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: fsType}, target, nil)
				requireError(t, err, unix.EIO, "probe "+d.device, "cannot tell what is on it", "it is not touched")
				requireMounts(t, target.Path(), 0)
			}
			requireReadError(t, d.device, at) // it would not be, had it been written to
		})
	}
}

func requireReadError(t *testing.T, device string, at int64) {
	t.Helper()
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(make([]byte, 4096), at); err == nil {
		t.Fatalf("%s can be read at %d", device, at)
	}
}

// mountDamaged returns a directory with an empty image for each of names, which
// cannot be read at the given place: btrfs detects the changed data by its
// checksum.
func mountDamaged(t *testing.T, size int64, names map[string]int64) string {
	t.Helper()
	d, target := formatted(t, "btrfs"), newTarget(t)
	var m mounter.Mounter
	mount := func() {
		t.Helper()
		if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, Options: []string{"noatime"}}, target, nil); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	pattern := make([]byte, 4096)
	_, _ = rand.Read(pattern)
	for name, at := range names {
		path := filepath.Join(target.Path(), name)
		mustWrite(t, path, "")
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		writeAt(t, path, at, pattern)
	}
	mustUnmount(t, target)
	damageAll(t, d.device, pattern)
	mount()
	t.Cleanup(func() {
		// The loop devices on the images go a little later than the test that
		// had them.
		if err := m.Unmount(context.Background(), target); err != nil {
			t.Error(err)
		}
	})
	return target.Path()
}

// damageAll changes one byte wherever pattern is on the device.
func damageAll(t *testing.T, device string, pattern []byte) {
	t.Helper()
	content, err := os.ReadFile(device)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for at := 0; ; n++ {
		i := bytes.Index(content[at:], pattern)
		if i < 0 {
			break
		}
		at += i
		writeAt(t, device, int64(at), []byte{^pattern[0]})
		at++
	}
	if n == 0 {
		t.Fatal("the data is nowhere on the disk")
	}
}

func TestProbeNoSize(t *testing.T) {
	testenv.Need(t, "loop")
	var m mounter.Mounter
	_, err := m.Probe(t.Context(), newDisk(t, 1).device) // less than a sector
	requireError(t, err, nil, "probe", "has no size")
}
