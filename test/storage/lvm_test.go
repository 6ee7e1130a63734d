package storage_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// newVolumeGroup makes the volume group of Kubernetes' example driver, kubernetes.io/lvm, with
// the logical volumes that it would have: it attaches one that is there, and puts the filesystem
// of the PersistentVolume on it, if it has none, when it is first mounted.
func newVolumeGroup(t *testing.T) {
	t.Helper()
	runUdev(t)
	sh(t, `modprobe loop
modprobe dm-mod
modprobe xfs
truncate -s 1500M /run/lvm.img
disk=$(losetup --find --show /run/lvm.img)
pvcreate -q $disk
vgcreate -q kube_vg $disk
for name in used with-hyphen; do lvcreate -q --yes --addtag shared --size 64M --name $name kube_vg; done
lvcreate -q --yes --addtag shared --size 400M --name blank kube_vg
lvcreate -q --yes --size 64M --name alone kube_vg
udevadm settle
for name in used with--hyphen alone; do mkfs.ext4 -q /dev/mapper/kube_vg-$name; done
mount /dev/mapper/kube_vg-used /media
echo old >/media/old
umount /media`)
}

// newLogical returns a volume of Kubernetes' example driver.
func newLogical(t *testing.T, name, fsType string) *volume {
	t.Helper()
	n := newNode(t)
	n.bridged("kubernetes.io/lvm", "k8s-lvm", "lvm")
	v := n.newVolume("kubernetes.io/lvm", "pv", fsType, map[string]string{"volumeID": name, "size": "1000m", "volumegroup": "kube_vg"}, nil)
	v.oneMode = true // the driver mounts the device for each pod
	return v
}

// TestLVMBridge proves that the bridge mounts what kubernetes.io/lvm had, by a driver with the
// habits of LocalPV-LVM.
func TestLVMBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newVolumeGroup(t)
		t.Run("old", func(t *testing.T) {
			p := newLogical(t, "used", "ext4").pod("a").mount()
			p.wantRead("old", "old\n")
			p.unmount()
			p.v.n.wantNothing()
		})
		t.Run("life/ext4", func(t *testing.T) { life(t, newLogical(t, "with-hyphen", "ext4")) })
		t.Run("life/xfs", func(t *testing.T) { life(t, newLogical(t, "blank", "xfs")) })
		t.Run("fsGroup", func(t *testing.T) { grouped(t, newLogical(t, "used", "ext4")) })
		t.Run("crashes", func(t *testing.T) { crashes(t, newLogical(t, "used", "ext4")) })
		t.Run("notShared", func(t *testing.T) { notShared(t, newLogical(t, "alone", "ext4")) })
		t.Run("missing", func(t *testing.T) {
			v := newLogical(t, "missing", "ext4")
			wantFailure(t, v.pod("a").tryMount(), "NodePublishVolume", "kube_vg/missing")
			v.n.wantNothing()
		})
		t.Run("oldMount", func(t *testing.T) {
			sh(t, "mount /dev/mapper/kube_vg-alone /media")
			v := newLogical(t, "alone", "ext4")
			wantFailure(t, v.pod("a").tryMount(), "already mounted at /media")
			v.n.wantNothing()
			sh(t, "umount /media")
			v.pod("a").mount().unmount()
		})
	})
}

// notShared: the driver refuses a second pod, as the preset says, until the first one has ended.
func notShared(t *testing.T, v *volume) {
	t.Helper()
	a, b := v.pod("a").mount(), v.pod("b")
	wantFailure(t, b.tryMount(), "NodePublishVolume", "already mounted at")
	if err := a.write("file", "data"); err != nil {
		t.Error(err)
	}
	a.unmount()
	b.mount().wantRead("file", "data")
	b.unmount()
	v.n.wantNothing()
}
