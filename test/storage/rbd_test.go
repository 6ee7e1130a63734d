package storage_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// image makes an image as Rook's provisioner did, and returns its name.
func (c *ceph) image(size string, more ...string) string {
	c.t.Helper()
	c.images++
	name := fmt.Sprintf("pvc-%d", c.images)
	c.sh(`rbd create --size ` + size + ` --image-feature layering ` + strings.Join(more, " ") + ` ` + pool + `/` + name)
	return name
}

// used makes an image with a filesystem and a file, as Rook's agent and a pod did.
func (c *ceph) used(fsType string) string {
	c.t.Helper()
	name := c.image(map[string]string{"ext4": "64M", "xfs": "350M"}[fsType])
	device := c.mapImage(name)
	c.sh(`mkfs.` + fsType + ` -q ` + device + `
mount ` + device + ` /media
echo old >/media/old
umount /media
rbd unmap -o noudev ` + device)
	return name
}

// mapImage gives the node an image's device.
func (c *ceph) mapImage(image string) string {
	c.t.Helper()
	out, err := exec.Command("rbd", "map", "-o", "noudev", pool+"/"+image).Output()
	if err != nil {
		c.t.Fatalf("rbd map %s: %v", image, err)
	}
	return strings.TrimSpace(string(out))
}

// options are those of a PersistentVolume that Rook's provisioner made.
func options(image string) map[string]string {
	return map[string]string{
		"clusterNamespace": "rook-ceph", "dataBlockPool": "", "image": image, "blockPool": pool, "pool": pool, "storageClass": "rook-ceph-block",
	}
}

// rbdVolume returns a volume of Rook's driver on a node with the bridge.
func (c *ceph) rbdVolume(t *testing.T, image, fsType string, edits ...string) *volume {
	t.Helper()
	return c.bridged(t, "rbd", edits...).newVolume(rookDriver("rbd"), image, fsType, options(image), nil)
}

// wantUnmapped fails the test if the node has an image mapped.
func wantUnmapped(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("rbd", "device", "list").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("still mapped: %s%v", out, err)
	}
}

// wantOld fails the test unless a pod has what was in the image before, and leaves nothing.
func wantOld(t *testing.T, p *pod) {
	t.Helper()
	p.wantRead("old", "old\n")
	p.unmount()
	p.v.n.wantNothing()
	wantUnmapped(t)
}

// grow has the storage give the image of a pod's volume 128 MiB, and expands the volume.
func (c *ceph) grow(t *testing.T, p *pod, image string) {
	t.Helper()
	c.sh("rbd resize --no-progress --size 128M " + pool + "/" + image)
	if status := p.expand(64<<20, 128<<20); status.Status != flex.StatusSuccess {
		t.Errorf("expandfs answered %s: %s", status.Status, status.Message)
	}
	if size := sizeOf(t, p); size < 96<<20 {
		t.Errorf("the filesystem has %d bytes; want about %d", size, 128<<20)
	}
	p.unmount()
	p.v.n.wantNothing()
}

// sizeOf is the size of what a pod has.
func sizeOf(t *testing.T, p *pod) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(p.dir(), &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize
}

// TestRBDBridge proves that the bridge mounts, by ceph-csi, what Rook's agent has mounted.
func TestRBDBridge(t *testing.T) {
	needCeph(t)
	guest.Run(t, func(t *testing.T) { newCeph(t).bridgeImages(t) })
}

func (c *ceph) bridgeImages(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run("old/"+fsType, func(t *testing.T) {
			wantOld(t, c.rbdVolume(t, c.used(fsType), fsType).pod("a").mount())
		})
	}
	t.Run("life/ext4", func(t *testing.T) { life(t, c.rbdVolume(t, c.image("64M"), "ext4")) })
	t.Run("life/xfs", func(t *testing.T) { life(t, c.rbdVolume(t, c.image("350M"), "xfs")) })
	t.Run("fsGroup", func(t *testing.T) { grouped(t, c.rbdVolume(t, c.used("ext4"), "ext4")) })
	t.Run("crashes", func(t *testing.T) { crashes(t, c.rbdVolume(t, c.used("ext4"), "ext4")) })
	t.Run("grow", func(t *testing.T) {
		image := c.used("ext4")
		c.grow(t, c.rbdVolume(t, image, "ext4").pod("a").mount(), image)
	})
	// ceph-csi's controller does not expand such an image. The answer says that an operator has to.
	t.Run("not grown", func(t *testing.T) {
		p := c.rbdVolume(t, c.used("ext4"), "ext4").pod("a").mount()
		wantFailure(t, p.expand(64<<20, 128<<20), "on a device of 67108864", "grow the volume in its storage")
		p.unmount()
		p.v.n.wantNothing()
	})
}
