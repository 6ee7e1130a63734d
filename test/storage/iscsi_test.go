package storage_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// An iscsiServer is tgtd with a target, to which the node is logged in.
type iscsiServer struct {
	*network
	disks int
}

const (
	iqn = "iqn.2026-01.com.example:disks"
	// secondPortal is another address of the servers.
	secondPortal = "10.1.0.3"
)

func newISCSIServer(t *testing.T) *iscsiServer {
	t.Helper()
	s := &iscsiServer{network: newNetwork(t)}
	runUdev(t)
	// The usual two minutes of replacement_timeout would be waited for in each outage.
	s.sh(`modprobe sd_mod
modprobe iscsi_tcp
modprobe xfs
ip -n servers address add ` + secondPortal + `/24 dev servers
ip netns exec servers tgtd >/tmp/tgtd.log 2>&1
until tgtadm --lld iscsi --op new --mode target --tid 1 --targetname ` + iqn + ` 2>/dev/null; do sleep .2; done
tgtadm --lld iscsi --op bind --mode target --tid 1 --initiator-address ALL
sed -i -e '/replacement_timeout/d' -e '/noop_out/d' /etc/iscsi/iscsid.conf
cat >>/etc/iscsi/iscsid.conf <<E
node.session.timeo.replacement_timeout = 10
node.conn[0].timeo.noop_out_interval = 2
node.conn[0].timeo.noop_out_timeout = 2
E
mkdir -p /run/lock/iscsi
iscsid`)
	s.login(serverAddress)
	return s
}

func (s *iscsiServer) login(portal string) {
	s.t.Helper()
	s.sh(`iscsiadm --mode node --op new --target ` + iqn + ` --portal ` + portal + `
iscsiadm --mode node --target ` + iqn + ` --portal ` + portal + ` --login
udevadm settle`)
}

// away is the outage in which the node has no session.
func (s *iscsiServer) away() outage {
	return outage{
		begin: func() { s.sh("iscsiadm --mode node --logout") },
		end:   func() { s.login(serverAddress) },
	}
}

// newDisk adds a disk to the target, and returns its name in /dev/disk/by-path.
func (s *iscsiServer) newDisk(size string) string {
	s.t.Helper()
	s.disks++
	s.setSize(s.disks, size)
	s.rescan()
	path := fmt.Sprintf("/dev/disk/by-path/ip-%s:3260-iscsi-%s-lun-%d", serverAddress, iqn, s.disks)
	s.sh("until test -b " + path + "; do sleep .1; done")
	return path
}

// setSize has the target offer a disk with this size, and what was in it before.
func (s *iscsiServer) setSize(lun int, size string) {
	s.t.Helper()
	s.sh(fmt.Sprintf(`truncate -s %[2]s /run/disk%[1]d.img
tgtadm --lld iscsi --op delete --mode logicalunit --tid 1 --lun %[1]d 2>/dev/null || true
tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun %[1]d --backing-store /run/disk%[1]d.img`, lun, size))
}

func (s *iscsiServer) rescan() {
	s.t.Helper()
	s.sh("iscsiadm --mode session --rescan\nudevadm settle")
}

// byID returns the name of a disk in /dev/disk/by-id with this beginning.
func byID(t *testing.T, prefix, device string) string {
	t.Helper()
	node, err := filepath.EvalSymlinks(device)
	if err != nil {
		t.Fatal(err)
	}
	links, _ := filepath.Glob("/dev/disk/by-id/" + prefix + "*")
	for _, link := range links {
		if at, err := filepath.EvalSymlinks(link); err == nil && at == node {
			return link
		}
	}
	t.Fatalf("%s has no name with %s among %q", device, prefix, links)
	return ""
}

// newDiskVolume returns a volume of flexdriver alone.
func newDiskVolume(t *testing.T, device, fsType string) *volume {
	t.Helper()
	n := newNode(t)
	n.alone("example.com/disk", "--device-root", filepath.Dir(device))
	return n.newVolume("example.com/disk", "pv", fsType, map[string]string{"device": device}, nil)
}

// TestISCSIAlone proves that flexdriver mounts disks of a target by the names that udev gives
// them, and what it answers where a disk is another than was asked for, in use, or gone.
func TestISCSIAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newISCSIServer(t)
		t.Run("life/ext4", func(t *testing.T) { life(t, newDiskVolume(t, s.newDisk("64M"), "ext4")) })
		t.Run("life/xfs", func(t *testing.T) {
			life(t, newDiskVolume(t, byID(t, "scsi-3", s.newDisk("350M")), "xfs"))
		})
		t.Run("other", func(t *testing.T) {
			disk := s.newDisk("350M")
			s.sh("mkfs.xfs -q " + disk)
			v := newDiskVolume(t, disk, "ext4")
			wantFailure(t, v.pod("a").tryMount(), "the disk holds xfs, not ext4")
			v.n.wantNothing()
		})
		t.Run("inUse", func(t *testing.T) {
			disk := s.newDisk("64M")
			s.sh("mkfs.ext4 -q " + disk + "\nmount " + disk + " /media")
			v := newDiskVolume(t, disk, "ext4")
			wantFailure(t, v.pod("a").tryMount(), "/media")
			s.sh("umount /media")
			v.pod("a").mount().unmount()
			v.n.wantNothing()
		})
		t.Run("grow", func(t *testing.T) { s.grow(t) })
		t.Run("silent", func(t *testing.T) { s.silent().strike(t, newDiskVolume(t, s.newDisk("64M"), "ext4")) })
		t.Run("away", func(t *testing.T) {
			mounted, unmounted := s.away().strike(t, newDiskVolume(t, s.newDisk("64M"), "ext4"))
			wantFailure(t, mounted, "/dev/disk/by-path/")
			if unmounted.Status != flex.StatusSuccess {
				t.Errorf("unmount of a disk that is gone: %s", unmounted.Message)
			}
		})
		t.Run("multipath", func(t *testing.T) { s.multipath(t) })
	})
}

// grow expands a volume: the target has to have grown, and the node has to have seen that.
func (s *iscsiServer) grow(t *testing.T) {
	const before, after = 64 << 20, 128 << 20
	v := newDiskVolume(t, s.newDisk(strconv.Itoa(before)), "ext4")
	p := v.pod("a").mount()
	wantFailure(t, p.expand(before, after), "rescan")
	p.unmount() // tgtd cannot change the size of a disk that is in use
	s.setSize(s.disks, strconv.Itoa(after))
	s.rescan()
	p.mount()
	if status := p.expand(before, after); status.Status != flex.StatusSuccess {
		t.Errorf("expandfs answered %s: %s", status.Status, status.Message)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(p.dir(), &st); err != nil || int64(st.Blocks)*st.Bsize < after*3/4 {
		t.Errorf("the filesystem has %d bytes, %v; want about %d", int64(st.Blocks)*st.Bsize, err, after)
	}
	p.unmount()
	v.n.wantNothing()
}

// multipath gives a disk a second path. Then the paths are refused, and the device that is made
// of them is a disk like others.
func (s *iscsiServer) multipath(t *testing.T) {
	path := s.newDisk("64M")
	s.sh(`modprobe dm-multipath
modprobe dm-service-time
cat >/etc/multipath.conf <<E
defaults {
	user_friendly_names yes
	find_multipaths yes
}
E
multipathd`)
	s.login(secondPortal)
	node, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	var holders []string
	for deadline := time.Now().Add(time.Minute); len(holders) == 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		holders, _ = filepath.Glob("/sys/block/" + filepath.Base(node) + "/holders/*")
	}
	if len(holders) == 0 {
		t.Fatal("multipathd has made nothing of two paths to a disk")
	}
	s.sh("udevadm settle")
	device := "/dev/" + filepath.Base(holders[0])
	v := newDiskVolume(t, path, "ext4")
	wantFailure(t, v.pod("a").tryMount(), "it is part of "+device)
	v.n.wantNothing()
	life(t, newDiskVolume(t, byID(t, "dm-uuid-mpath-", device), "ext4"))
}
