package mounter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// tear changes a byte of the superblock, so that its checksum does not fit: as
// e2fsck and resize2fs leave it when they are killed between two writes.
func (d disk) tear(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(d.device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const writeTime = 1024 + 0x30
	var b [1]byte
	if _, err := f.ReadAt(b[:], writeTime); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], writeTime); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// A blkid(8) that checks checksums sees nothing on a disk with a torn
// superblock. It was formatted, with all that was on it.
func TestDiskTornSuperblock(t *testing.T) {
	testenv.Need(t, "ext4")
	for name, blind := range map[string]bool{"blkid": false, "blkid that checks": true} {
		t.Run(name, func(t *testing.T) {
			var m mounter.Mounter
			d, target := formatted(t, "ext4"), newTarget(t)
			disk := mounter.Disk{Device: d.device, FSType: "ext4"}
			if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, filepath.Join(target.Path(), "file"), "content")
			mustUnmount(t, target)
			if err := mounter.WaitDetached(t.Context(), d.device, ""); err != nil {
				t.Fatal(err)
			}
			d.tear(t)

			if blind {
				dir, real := t.TempDir(), strings.TrimSpace(mustRun(t, "sh", "-c", "command -v blkid || echo /sbin/blkid"))
				script := "#!/bin/sh\ndumpe2fs -h " + d.device + " >/dev/null 2>&1 || exit 2\nexec " + real + ` "$@"` + "\n"
				if err := os.WriteFile(filepath.Join(dir, "blkid"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
				m.Programs = dir
			}
			if found, err := m.Probe(t.Context(), d.device); found != "ext4" || err != nil {
				t.Fatalf("Probe: %q, %v", found, err)
			}
			if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
				t.Fatal(err)
			}
			if got := mustRead(t, filepath.Join(target.Path(), "file")); got != "content" {
				t.Errorf("file is %q", got)
			}
			mustUnmount(t, target)
			if err := mounter.WaitDetached(t.Context(), d.device, ""); err != nil {
				t.Fatal(err)
			}
			mustRun(t, "e2fsck", "-f", "-n", d.device)
		})
	}
}

// A read-only volume is not mended, and not formatted either.
func TestDiskTornSuperblockReadOnly(t *testing.T) {
	var m mounter.Mounter
	d, target := formatted(t, "ext4"), newTarget(t)
	d.tear(t)
	before := mustRead(t, d.path)
	if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "ext4", ReadOnly: true}, target, nil); err == nil {
		t.Error("mounted")
	}
	requireMounts(t, target.Path(), 0)
	if mustRead(t, d.path) != before {
		t.Error("the disk was written to")
	}
}
