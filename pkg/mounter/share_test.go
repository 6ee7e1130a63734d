package mounter_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// The same where another program uses the disk, so that the kernel would only say
// that it is busy.
func TestDiskWrongFilesystemHeld(t *testing.T) {
	d, target, other := formatted(t, "ext4"), newTarget(t), newTarget(t)
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device}, other, nil); err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, other)
		for _, readOnly := range []bool{false, true} {
			err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "xfs", ReadOnly: readOnly}, target, nil)
			requireError(t, err, mounter.ErrWrongFilesystem, "the disk holds ext4, not xfs", d.device)
			requireMounts(t, target.Path(), 0)
		}
	})
}

// A device that something other than a filesystem holds.
func TestDiskHeldByOther(t *testing.T) {
	testenv.Need(t, "ext4")
	for _, formatIt := range []bool{true, false} {
		for _, fsType := range []string{"ext4", ""} {
			for _, classic := range []bool{false, true} {
				t.Run(fmt.Sprintf("formatted %t, type %q, classic %t", formatIt, fsType, classic), func(t *testing.T) {
					t.Parallel() // waits whether the device becomes free
					d, target := newDisk(t, leastSize("ext4")), newTarget(t)
					if formatIt {
						mustRun(t, "mkfs.ext4", "-q", d.device)
					}
					holder, err := os.OpenFile(d.device, os.O_RDWR|unix.O_EXCL, 0)
					if err != nil {
						t.Fatal(err)
					}
					defer holder.Close()
					m := mounter.Mounter{Classic: classic}
					err = m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: fsType}, target, nil)
					requireError(t, err, mounter.ErrBusy, d.device, "lsblk")
					requireMounts(t, target.Path(), 0)
				})
			}
		}
	}
}

// Several targets share one filesystem; the last unmount ends it.
func TestDiskShared(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			testenv.Need(t, fsType)
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				d := newDisk(t, leastSize(fsType))
				a, b, ro := newTarget(t), newTarget(t), newTarget(t)
				disk := mounter.Disk{Device: d.device, FSType: fsType}
				for _, target := range []*mounter.Target{a, b} {
					if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
						t.Fatal(err)
					}
				}
				mustWrite(t, filepath.Join(a.Path(), "file"), "from a")
				// Read-only next to read-write.
				reader := disk
				reader.ReadOnly = true
				if err := m.MountDisk(t.Context(), reader, ro, nil); err != nil {
					t.Fatal(err)
				}
				requireWritable(t, ro.Path(), false)
				requireWritable(t, a.Path(), true)
				for _, target := range []*mounter.Target{b, ro} {
					if got := mustRead(t, filepath.Join(target.Path(), "file")); got != "from a" {
						t.Errorf("%s: file is %q", target.Path(), got)
					}
				}
				mustUnmount(t, a)
				mustWrite(t, filepath.Join(b.Path(), "file"), "from b")
				mustUnmount(t, b)
				if got := mustRead(t, filepath.Join(ro.Path(), "file")); got != "from b" {
					t.Errorf("file is %q", got)
				}
				requireWritable(t, ro.Path(), false)
				// And read-write again, next to the read-only one.
				if err := m.MountDisk(t.Context(), disk, a, nil); err != nil {
					t.Fatal(err)
				}
				requireWritable(t, a.Path(), true)
				requireWritable(t, ro.Path(), false)
				mustUnmount(t, ro)
				mustUnmount(t, a)
				if err := mounter.WaitDetached(t.Context(), d.device, ""); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Read-only first: the filesystem itself is read-only, until a mount wants to
// write.
func TestDiskReadOnlyThenReadWrite(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				d, ro, rw := formatted(t, fsType), newTarget(t), newTarget(t)
				if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: fsType, ReadOnly: true}, ro, nil); err != nil {
					t.Fatal(err)
				}
				if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: fsType, Options: []string{"noexec"}}, rw, nil); err != nil {
					t.Fatal(err)
				}
				requireWritable(t, rw.Path(), true)
				requireWritable(t, ro.Path(), false)
				if mount, _ := optionsAt(t, rw.Path()); !slices.Contains(mount, "noexec") {
					t.Errorf("mounted with %v", mount)
				}
				mustUnmount(t, ro)
				requireWritable(t, rw.Path(), true)
				mustUnmount(t, rw)
			})
		})
	}
	// It cannot be made writable: the device may not be written to.
	t.Run("write-protected", func(t *testing.T) {
		eachWay(t, func(t *testing.T, m *mounter.Mounter) {
			d, ro, rw := formatted(t, "ext4"), newTarget(t), newTarget(t)
			d.setReadOnly(t)
			if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, ReadOnly: true}, ro, nil); err != nil {
				t.Fatal(err)
			}
			defer mustUnmount(t, ro)
			err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device}, rw, nil)
			requireError(t, err, nil, d.device, rw.Path(), "read-only elsewhere on this node and cannot be made writable")
			requireMounts(t, rw.Path(), 0)
			requireMounts(t, ro.Path(), 1)
		})
	})
}

// A disk that is mounted in another mount namespace only, as by a container, is
// shared, and cannot be let go of as long as it is there.
func TestDiskInOtherNamespace(t *testing.T) {
	testenv.Need(t, "ext4", "prog:unshare")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		d, target, there := formatted(t, "ext4"), newTarget(t), newTarget(t)
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", `mount "$0" "$1" && echo content >"$1/file" && echo mounted && exec cat`, d.device, there.Path())
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if word, err := bufio.NewReader(stdout).ReadString('\n'); word != "mounted\n" {
			t.Fatalf("%q, %v", word, err)
		}
		requireMounts(t, there.Path(), 0)
		if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device}, target, nil); err != nil {
			t.Fatal(err)
		}
		if got := mustRead(t, filepath.Join(target.Path(), "file")); got != "content\n" {
			t.Errorf("file is %q", got)
		}
		mustUnmount(t, target)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		requireError(t, mounter.WaitDetached(ctx, d.device, ""), mounter.ErrBusy, "release "+d.device, "another mount namespace", "mountinfo")
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if err := mounter.WaitDetached(t.Context(), d.device, ""); err != nil {
			t.Error(err)
		}
	})
}
