package mounter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestDiskFormatsEmpty(t *testing.T) {
	for name, tt := range map[string]struct {
		fsType string
		want   string
	}{
		"ext4":    {fsType: "ext4", want: "ext4"},
		"ext3":    {fsType: "ext3", want: "ext3"},
		"ext2":    {fsType: "ext2", want: "ext2"},
		"xfs":     {fsType: "xfs", want: "xfs"},
		"btrfs":   {fsType: "btrfs", want: "btrfs"},
		"default": {fsType: "", want: "ext4"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want[:3] == "ext" {
				testenv.Need(t, "ext4", "prog:mkfs."+tt.want)
			} else {
				testenv.Need(t, tt.want)
			}
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				if m.Classic && tt.want != "ext4" && testing.Short() {
					t.Skip("the same as with ext4")
				}
				d, target := newDisk(t, leastSize(tt.want)), newTarget(t)
				if found, err := m.Probe(t.Context(), d.device); found != "" || err != nil {
					t.Errorf("Probe of an empty disk: %q, %v", found, err)
				}
				disk := mounter.Disk{Device: d.device, FSType: tt.fsType}
				for _, content := range []string{"", "content"} { // formatted, then found
					if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
						t.Fatal(err)
					}
					if got := mountsAt(t, target.Path()); len(got) != 1 || got[0].FSType != tt.want || got[0].Source != d.device {
						t.Errorf("mounted: %+v", got)
					}
					file := filepath.Join(target.Path(), "file")
					if content == "" {
						mustWrite(t, file, "content")
					} else if got := mustRead(t, file); got != content {
						t.Errorf("file is %q", got)
					}
					mustUnmount(t, target)
				}
				if found, err := m.Probe(t.Context(), d.device); found != tt.want || err != nil {
					t.Errorf("Probe: %q, %v", found, err)
				}
			})
		})
	}
}

// What fails to be formatted says why, and can be tried again.
func TestDiskFormatFails(t *testing.T) {
	testenv.Need(t, "ext4")
	var m mounter.Mounter
	d, target := newDisk(t, leastSize("ext4")), newTarget(t)
	disk := mounter.Disk{Device: d.device, FSType: "ext4"}
	failing := mounter.Mounter{Programs: fakeProgram(t, "mkfs.ext4", "echo it does not work; exit 1")}
	err := failing.MountDisk(t.Context(), disk, target, nil)
	requireError(t, err, nil, d.device, target.Path(), "ext4", "it does not work")
	requireMounts(t, target.Path(), 0)
	if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
		t.Fatal(err)
	}
	mustUnmount(t, target)

	missing := mounter.Disk{Device: newDisk(t, leastSize("ext4")).device, FSType: "minix-3"}
	requireError(t, m.MountDisk(t.Context(), missing, target, nil), nil, "mkfs.minix-3", "not installed")

	full := mounter.Disk{Device: newDisk(t, 4096).device, FSType: "ext4"}
	requireError(t, m.MountDisk(t.Context(), full, target, nil), nil, "ext4", target.Path())
}

func TestDiskReadOnly(t *testing.T) {
	testenv.Need(t, "ext4")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		for _, fsType := range []string{"ext4", ""} {
			d, target := newDisk(t, leastSize("ext4")), newTarget(t)
			disk := mounter.Disk{Device: d.device, FSType: fsType, ReadOnly: true}
			before := hash(t, d.path)
			err := m.MountDisk(t.Context(), disk, target, nil)
			requireError(t, err, mounter.ErrNotFormatted, d.device, "read-only", "mount it read-write once")
			if hash(t, d.path) != before {
				t.Error("a read-only volume was written to")
			}
			mustRun(t, "mkfs.ext4", d.device)
			before = hash(t, d.path)
			if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
				t.Fatal(err)
			}
			requireWritable(t, target.Path(), false)
			mount, super := optionsAt(t, target.Path())
			if mount[0] != "ro" || super[0] != "ro" {
				t.Errorf("mounted with %v and %v", mount, super)
			}
			mustUnmount(t, target)
			if hash(t, d.path) != before {
				t.Error("a read-only mount wrote to the disk")
			}
		}
	})
}

// A disk that cannot be written to is read-only whatever was asked for.
func TestDiskWriteProtected(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				d, target := formatted(t, fsType), newTarget(t)
				d.setReadOnly(t)
				disk := mounter.Disk{Device: d.device, FSType: fsType}
				err := m.MountDisk(t.Context(), disk, target, nil)
				requireError(t, err, mounter.ErrReadOnly, d.device, "cannot be written to", "read-only")
				requireMounts(t, target.Path(), 0)
				disk.ReadOnly = true
				if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
					t.Fatal(err)
				}
				requireWritable(t, target.Path(), false)
				mustUnmount(t, target)
			})
		})
	}
	t.Run("empty", func(t *testing.T) {
		testenv.Need(t, "ext4")
		var m mounter.Mounter
		d, target := newDisk(t, leastSize("ext4")), newTarget(t)
		d.setReadOnly(t)
		err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "ext4"}, target, nil)
		requireError(t, err, mounter.ErrReadOnly, d.device, "cannot be written to")
	})
}

// Another filesystem than was asked for stays as it is, to the last byte.
func TestDiskWrongFilesystem(t *testing.T) {
	for _, has := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(has, func(t *testing.T) {
			d, target := formatted(t, has), newTarget(t)
			before := hash(t, d.path)
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				for _, want := range []string{"ext4", "xfs", "btrfs", "ext3"} {
					if want == has {
						continue
					}
					for _, readOnly := range []bool{false, true} {
						err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: want, ReadOnly: readOnly}, target, nil)
						requireError(t, err, mounter.ErrWrongFilesystem, fmt.Sprintf("the disk holds %s, not %s", has, want), d.device, "it stays as it is")
						requireMounts(t, target.Path(), 0)
					}
				}
			})
			if hash(t, d.path) != before {
				t.Error("the disk was changed")
			}
		})
	}
}

func TestDiskOptions(t *testing.T) {
	testenv.Need(t, "ext4")
	d, target := formatted(t, "ext4"), newTarget(t)
	for name, tt := range map[string]struct {
		options []string
		want    []string
		text    string // of the error; of mount(2), which says no more: invalid argument
	}{
		"of the mount":      {options: []string{"nosuid", "noexec", "nodev", "noatime"}, want: []string{"nosuid", "noexec", "nodev", "noatime"}},
		"discard":           {options: []string{"discard"}, want: []string{"discard"}},
		"with a value":      {options: []string{"commit=17"}, want: []string{"commit=17"}},
		"sync and lazytime": {options: []string{"sync", "lazytime", "dirsync"}, want: []string{"sync", "lazytime", "dirsync"}},
		"quoted":            {options: []string{`errors="continue"`, "commit=19"}, want: []string{"commit=19"}},
		"unknown":           {options: []string{"nonsense"}, text: "Unknown parameter 'nonsense'"},
		"unknown value":     {options: []string{"data=nonsense"}, text: "data"},
		"bad number":        {options: []string{"commit=x"}, text: "commit"},
		"out of range":      {options: []string{"discard", "commit=-5"}, text: "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "ext4", Options: tt.options}, target, nil)
				if tt.text != "" {
					if m.Classic || os.Getenv(envOldKernel) != "" {
						tt.text = "invalid argument"
					}
					requireError(t, err, nil, tt.text, d.device, target.Path(), "ext4", "options "+strings.Join(tt.options, ","))
					requireMounts(t, target.Path(), 0)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer mustUnmount(t, target)
				mount, super := optionsAt(t, target.Path())
				for _, o := range tt.want {
					if !slices.Contains(mount, o) && !slices.Contains(super, o) {
						t.Errorf("mounted with %v and %v, want %s", mount, super, o)
					}
				}
			})
		})
	}
}

// A filesystem that was not unmounted in good order is repaired.
func TestDiskIsChecked(t *testing.T) {
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		d, target := formatted(t, "ext4"), newTarget(t)
		// What fsck -a repairs by itself: wrong counts, and an orphan.
		mustRun(t, "debugfs", "-w", "-R", "set_super_value free_blocks_count 7", d.device)
		mustRun(t, "debugfs", "-w", "-R", "set_super_value state 2", d.device) // has errors
		readOnly := mounter.Disk{Device: d.device, FSType: "ext4", ReadOnly: true}
		before := hash(t, d.path)
		if err := m.MountDisk(t.Context(), readOnly, target, nil); err != nil {
			t.Fatal(err)
		}
		mustUnmount(t, target)
		if hash(t, d.path) != before {
			t.Error("a read-only mount repaired the disk")
		}
		if err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "ext4"}, target, nil); err != nil {
			t.Fatal(err)
		}
		mustUnmount(t, target)
		if out := mustRun(t, "dumpe2fs", "-h", d.device); !strings.Contains(out, "Filesystem state:         clean\n") {
			t.Errorf("not repaired:\n%s", out)
		}
	})
}

// What fsck cannot repair by itself is not mounted.
func TestDiskCannotBeRepaired(t *testing.T) {
	var m mounter.Mounter
	d, target := formatted(t, "ext4"), newTarget(t)
	mustRun(t, "debugfs", "-w", "-R", "set_inode_field <2> mode 0100644", d.device) // the root is a file
	mustRun(t, "debugfs", "-w", "-R", "set_super_value state 2", d.device)
	err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, FSType: "ext4"}, target, nil)
	requireError(t, err, nil, d.device, target.Path(), "could not correct")
	requireMounts(t, target.Path(), 0)
}

func TestDiskMissing(t *testing.T) {
	testenv.Need(t, "mount")
	var m mounter.Mounter
	target := newTarget(t)
	for _, device := range []string{"/dev/none", filepath.Join(newDir(t), "none")} {
		err := m.MountDisk(t.Context(), mounter.Disk{Device: device, FSType: "ext4"}, target, nil)
		requireError(t, err, os.ErrNotExist, device)
	}
	_, err := m.Probe(t.Context(), target.Path())
	requireError(t, err, nil, "probe "+target.Path())
}

func TestDiskEndsWithContext(t *testing.T) {
	testenv.Need(t, "ext4")
	var m mounter.Mounter
	d, target := newDisk(t, leastSize("ext4")), newTarget(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := m.MountDisk(ctx, mounter.Disk{Device: d.device, FSType: "ext4"}, target, nil)
	requireError(t, err, context.Canceled, d.device)
	requireMounts(t, target.Path(), 0)
}

// nodeDisk is a loop device that does not end with its last user, as one that an
// administrator makes.
func nodeDisk(t *testing.T) disk {
	t.Helper()
	image := newImage(t, leastSize("ext4"))
	device := strings.TrimSpace(mustRun(t, "losetup", "--find", "--show", image))
	t.Cleanup(func() {
		if out, err := exec.Command("/usr/sbin/losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return disk{path: image, device: device}
}

func TestFindByTag(t *testing.T) {
	var m mounter.Mounter
	testenv.Need(t, "ext4")
	d := nodeDisk(t)
	mustRun(t, "mkfs.ext4", "-q", "-L", "flextest $x", "-U", "6d0ca7a9-8c2f-4e6c-8d59-0c2a9b3d1c11", d.device)
	for tag, value := range map[string]string{"LABEL": "flextest $x", "UUID": "6d0ca7a9-8c2f-4e6c-8d59-0c2a9b3d1c11"} {
		if got, err := m.FindByTag(t.Context(), tag, value); got != d.device || err != nil {
			t.Errorf("%s=%s: %q, %v, want %s", tag, value, got, err, d.device)
		}
	}
	_, err := m.FindByTag(t.Context(), "LABEL", "flextest none")
	requireError(t, err, os.ErrNotExist, "find device LABEL=flextest none")
	twin := nodeDisk(t)
	mustRun(t, "dd", "if="+d.device, "of="+twin.device, "bs=1M", "status=none")
	_, err = m.FindByTag(t.Context(), "LABEL", "flextest $x")
	requireError(t, err, mounter.ErrBusy, "several have it", d.device, twin.device)
}

// A label is given to the filesystem where there is SELinux, and left out where
// there is none, as mount(8) does.
func TestDiskLabel(t *testing.T) {
	d, target := formatted(t, "ext4"), newTarget(t)
	const label = "system_u:object_r:container_file_t:s0:c1,c2"
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		err := m.MountDisk(t.Context(), mounter.Disk{Device: d.device, Options: []string{`context="` + label + `"`, "nosuid"}}, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, target)
		table := mountsAt(t, target.Path())[0].VFSOptions
		if got, want := strings.Contains(table, label), strings.Contains(string(filesystems), "selinuxfs"); got != want {
			t.Errorf("mounted with %s: label %t, want %t", table, got, want)
		}
	})
}
