package mounter

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// What e2fsck(8) or resize2fs(8) leave when they are killed, be it with this
// process or alone, is one of two things that neither the kernel nor fsck -a
// gets over, although no data is lost:
//
//   - A torn superblock. They write what has changed of it a few bytes at a
//     time (e2fsprogs, lib/ext2fs/closefs.c, write_primary_superblock), so its
//     checksum does not fit in between. Newer blkid(8) then see no filesystem
//     at all, and who trusts them formats the disk.
//   - A resize that is not finished. resize2fs marks the filesystem as faulty
//     while it works (resize/main.c), and says to run e2fsck -fy afterwards if
//     it could not clear the mark.
//
// An extSuper is the superblock of ext2, ext3 or ext4.
type extSuper [1024]byte

// Offsets in the superblock (fs/ext4/ext4.h, struct ext4_super_block), and
// values that are found there.
const (
	extSuperAt = 1024 // on the disk

	extBlocks, extBlocksHigh = 0x04, 0x150
	extLogBlockSize          = 0x18
	extMagicAt, extMagic     = 0x38, 0xef53
	extState, extFaulty      = 0x3a, 2
	extIncompat, ext64Bit    = 0x60, 0x80
	extRoCompat, extSums     = 0x64, 0x400
	extSumType, extCRC32C    = 0x175, 1
	extErrorCount            = 0x194
	extSum                   = 0x3fc
)

// readExt returns the superblock of a disk, or nil if it has none.
func readExt(device string) *extSuper {
	f, err := os.Open(device)
	if err != nil {
		return nil
	}
	defer f.Close()
	s := new(extSuper)
	if _, err := io.ReadFull(io.NewSectionReader(f, extSuperAt, int64(len(s))), s[:]); err != nil {
		return nil
	}
	if binary.LittleEndian.Uint16(s[extMagicAt:]) != extMagic {
		return nil
	}
	return s
}

func (s *extSuper) u32(at int) uint32 { return binary.LittleEndian.Uint32(s[at:]) }

// torn reports whether the superblock has a checksum that does not fit.
func (s *extSuper) torn() bool {
	return s.u32(extRoCompat)&extSums != 0 && s[extSumType] == extCRC32C && s.u32(extSum) != s.sum()
}

// sum is the checksum as it should be: CRC32C without the final inversion.
// One kilobyte is not worth linking hash/crc32.
func (s *extSuper) sum() uint32 {
	const castagnoli = 0x82f63b78
	crc := ^uint32(0)
	for _, b := range s[:extSum] {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ castagnoli&-(crc&1)
		}
	}
	return crc
}

// size of the filesystem in bytes.
func (s *extSuper) size() int64 {
	blocks := int64(s.u32(extBlocks))
	if s.u32(extIncompat)&ext64Bit != 0 {
		blocks += int64(s.u32(extBlocksHigh)) << 32
	}
	return blocks << (10 + s[extLogBlockSize]&7)
}

// resizing reports whether resize2fs was killed while the filesystem grew: it
// is marked as faulty, the kernel, which counts the errors that it finds, has
// found none, and there is room to grow.
func (s *extSuper) resizing(device string) bool {
	size, err := DeviceSize(device)
	faulty := binary.LittleEndian.Uint16(s[extState:])&extFaulty != 0
	return err == nil && faulty && s.u32(extErrorCount) == 0 && s.size() < size
}

// tornExt reports whether there is an ext4 with a torn superblock.
func tornExt(device string) bool {
	s := readExt(device)
	return s != nil && s.torn()
}

// mendExt puts in order what a killed e2fsck or resize2fs has left on a disk
// that is not mounted. Anything else is not its business.
func (m *Mounter) mendExt(ctx context.Context, device string) error {
	s := readExt(device)
	if s == nil {
		return nil
	}
	// The mark is ours alone: e2fsck -p that gives up on a damaged filesystem
	// leaves it faulty too, and that is for a person to repair.
	torn, cut := s.torn(), s.resizing(device) && resizing.on(device)
	if !torn && !cut {
		resizing.clear(device) // of one that was killed when it was done
		return nil
	}
	m.log().Warn("repairing an ext4 filesystem after an interrupted check or resize", "device", device, "tornSuperblock", torn, "unfinishedResize", cut)
	if torn {
		if err := s.seal(device); err != nil {
			return &Error{Op: "mend the superblock", Source: device, FSType: "ext4", Err: err}
		}
	}
	how := "-p"
	if cut {
		how = "-y" // as resize2fs itself says
	}
	out, err := commander{ctx: ctx, m: m}.Command("e2fsck", "-f", how, device).CombinedOutput()
	if err != nil && exitStatus(err) != 1 { // 1: errors corrected
		return &Error{Op: "mend", Source: device, FSType: "ext4", Err: fmt.Errorf("its check or resize was interrupted, and e2fsck -f %s cannot complete it: %w", how, withOutput(err, out))}
	}
	resizing.clear(device)
	return nil
}

// seal gives the superblock its checksum. Each of its fields is as it was or
// as it was to be; that they go together is for e2fsck to say, so the mark of
// a faulty filesystem stays until then, whatever becomes of this process.
func (s *extSuper) seal(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	s[extState] |= extFaulty
	binary.LittleEndian.PutUint32(s[extSum:], s.sum())
	if _, err := f.WriteAt(s[:], extSuperAt); err != nil {
		return err
	}
	return f.Sync()
}

func isExt(fsType string) bool { return fsType == "ext4" || fsType == "ext3" || fsType == "ext2" }
