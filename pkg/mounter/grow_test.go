package mounter_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// largerThan reports the size of the filesystem at path in bytes.
func filesystemSize(t *testing.T, path string) int64 {
	t.Helper()
	return size4k(t, path) * 4096
}

// enlarge doubles a disk and its image, but not what is on it.
func (d disk) enlarge(t *testing.T) {
	t.Helper()
	var m mounter.Mounter
	image, err := m.OpenImage(t.Context(), d.path, 0, anywhere())
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	size, err := image.Size()
	if err == nil {
		err = m.Grow(t.Context(), image, 2*size)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// requireGrown takes the one failure that is honest: ext4 does not grow online
// for a process without CAP_SYS_RESOURCE.
func requireGrown(t *testing.T, err error, fsType string, online bool) (grown bool) {
	t.Helper()
	if err != nil && online && fsType == "ext4" && !mayResize(t) {
		requireError(t, err, nil, "grow filesystem", "CAP_SYS_RESOURCE", "resize2fs")
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

func mayResize(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestGrow(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		for where, online := range map[string]bool{"mounted": true, "not mounted": false} {
			t.Run(fsType+" "+where, func(t *testing.T) {
				d, target := formatted(t, fsType), newTarget(t)
				var m mounter.Mounter
				mount := func() {
					t.Helper()
					if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: fsType}, target, nil); err != nil {
						t.Fatal(err)
					}
				}
				mount()
				mustWrite(t, filepath.Join(target.Path(), "file"), "content")
				before := filesystemSize(t, target.Path())
				if !online {
					mustUnmount(t, target)
				}
				d.enlarge(t)
				for range 2 { // again does nothing, and does it well
					grown := requireGrown(t, m.GrowFilesystem(t.Context(), d.device, fsType, target), fsType, online)
					if !online {
						requireMounts(t, target.Path(), 0)
						if f, err := os.OpenFile(d.device, os.O_RDONLY|unix.O_EXCL, 0); err != nil {
							t.Errorf("the device is not free afterwards: %v", err)
						} else {
							f.Close()
						}
						mount()
					}
					if after := filesystemSize(t, target.Path()); grown && after < before*17/10 {
						t.Errorf("%d bytes, %d before", after, before)
					}
					if got := mustRead(t, filepath.Join(target.Path(), "file")); got != "content" {
						t.Errorf("file is %q", got)
					}
					if !online {
						mustUnmount(t, target)
					}
				}
				if online {
					mustUnmount(t, target)
				}
			})
		}
	}
}

// A disk that another pod has mounted grows there, though it is not mounted
// where the call says.
func TestGrowMountedElsewhere(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel() // waits whether the device becomes free
			d, target, other := formatted(t, fsType), newTarget(t), newTarget(t)
			var m mounter.Mounter
			if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: fsType}, other, nil); err != nil {
				t.Fatal(err)
			}
			defer mustUnmount(t, other)
			before := filesystemSize(t, other.Path())
			d.enlarge(t)
			if requireGrown(t, m.GrowFilesystem(t.Context(), d.device, fsType, target), fsType, true) {
				if after := filesystemSize(t, other.Path()); after < before*17/10 {
					t.Errorf("%d bytes, %d before", after, before)
				}
			}
			requireMounts(t, target.Path(), 0)
		})
	}
}

func TestGrowFails(t *testing.T) {
	testenv.Need(t, "ext4", "prog:mkfs.ext4")
	var m mounter.Mounter
	target := newTarget(t)
	t.Run("damaged", func(t *testing.T) {
		d := formatted(t, "ext4")
		mustRun(t, "debugfs", "-w", "-R", "set_inode_field <2> mode 0100644", d.device)
		d.enlarge(t)
		err := m.GrowFilesystem(t.Context(), d.device, "ext4", target)
		requireError(t, err, nil, "grow filesystem "+d.device, "e2fsck", "ext4")
	})
	t.Run("cannot grow", func(t *testing.T) {
		d := newDisk(t, testenv.MiB)
		mustRun(t, "mke2fs", "-q", "-t", "ext4", d.device)
		err := m.GrowFilesystem(t.Context(), d.device, "squashfs", target)
		requireError(t, err, nil, "grow filesystem "+d.device, "squashfs")
		requireMounts(t, target.Path(), 0)
	})
	t.Run("ended", func(t *testing.T) {
		d := formatted(t, "ext4")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		requireError(t, m.GrowFilesystem(ctx, d.device, "ext4", target), context.Canceled, d.device)
	})
}

// A filesystem stays as large as it is on a device that became no larger.
// A resize goes on in the kernel after its process was killed with its parent.
func TestGrowWhileResized(t *testing.T) {
	testenv.Need(t, "btrfs")
	d, target := newDisk(t, leastSize("btrfs")), newTarget(t)
	var m mounter.Mounter
	if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "btrfs"}, target, nil); err != nil {
		t.Fatal(err)
	}
	defer mustUnmount(t, target)
	m.Programs = fakeProgram(t, "btrfs", `n=$(cat $dir/n 2>/dev/null || echo 0); echo $((n+1)) >$dir/n
[ $n -lt 20 ] && { echo "ERROR: unable to start resize, another exclusive operation 'resize' in progress" >&2; exit 1; }
PATH=$PATH exec /usr/bin/btrfs "$@"`)
	d.enlarge(t)
	if err := m.GrowFilesystem(t.Context(), d.device, "btrfs", target); err != nil {
		t.Error(err)
	}
}

func TestGrowNothing(t *testing.T) {
	d, target := formatted(t, "ext4"), newTarget(t)
	var m mounter.Mounter
	if err := m.GrowFilesystem(t.Context(), d.device, "ext4", target); err != nil {
		t.Fatal(err)
	}
	if out := mustRun(t, "dumpe2fs", "-h", d.device); !strings.Contains(out, "clean") {
		t.Errorf("%s", out)
	}
}
