package storage_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/storage/guest"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// Places on the disks that outlive the power.
const (
	nodeDisk    = "/dev/ubda" // of the node: /var/lib
	storageDisk = "/dev/ubdb" // of the servers
	ext4Disk    = "/dev/ubdc"
	xfsDisk     = "/dev/ubdd"
	nodeTop     = "/var/lib/node"
	images      = "/srv/exports/images" // of the CSI driver with images
	local       = "example.com/local"
)

// TestPowerOffAlone takes the power of a node with flexdriver alone, and of its storage, at random
// moments while volumes of each kind are mounted, written and unmounted. After each boot it proves
// that
//   - what was written and synced is there, in each volume,
//   - its filesystem needs no repair but its journal's,
//   - a pod that comes back gets its volume, one that does not loses it, and nothing stays mounted,
//     attached or recorded.
//
// FLEX_POWER_CUTS says how often, FLEX_POWER_SEED repeats a run as far as the clock lets it.
func TestPowerOffAlone(t *testing.T) {
	powerOff(t, func(p *powered) {
		root := nodeTop + "/images"
		p.s.sh("mkdir -p " + root)
		p.n.alone(local, "--source-type", "nfs", "--device-root", "/dev", "--image-root", root)
		p.add(local, "nfs", "nfs", "", map[string]string{"source": serverAddress + ":/rw", "mountOptions": "vers=4.2"})
		p.add(local, "ext4", "ext4", ext4Disk, map[string]string{"device": ext4Disk})
		p.add(local, "xfs", "xfs", xfsDisk, map[string]string{"device": xfsDisk})
		p.add(local, "image", "ext4", root+"/default/i", map[string]string{"image": root + "/default/i", "size": "64Mi"})
	})
}

// TestPowerOffBridge is the same with the bridge: NFS, and disk images that have to be attached.
func TestPowerOffBridge(t *testing.T) {
	powerOff(t, func(p *powered) {
		p.n.bridgedTwice()
		p.add("k8s/nfs", "nfs", "", "", map[string]string{"server": serverAddress, "share": "rw"})
		for _, fs := range []string{"ext4", "xfs"} {
			p.add("example.com/disk", fs, fs, images+"/volumes/"+fs+".img", map[string]string{"volumeHandle": fs})
		}
	})
}

func powerOff(t *testing.T, volumes func(p *powered)) {
	t.Helper()
	power := guest.Power{
		Disks: []int64{512 * testenv.MiB, 1 * testenv.GiB, 256 * testenv.MiB, 512 * testenv.MiB},
		Cuts:  int(number(t, "FLEX_POWER_CUTS", 6)), Seed: number(t, "FLEX_POWER_SEED", uint64(time.Now().UnixNano())),
		Lines: 150, Later: 500 * time.Millisecond,
	}
	t.Logf("FLEX_POWER_SEED=%d", power.Seed)
	guest.Cut(t, power, func(t *testing.T, b *guest.Boot) {
		p := newPowered(t, b)
		volumes(p)
		p.all("resume", (*kept).resume)
		p.n.wantNothing()
		for !t.Failed() {
			p.all("live", (*kept).live)
			p.n.wantNothing()
			if b.Last {
				break
			}
		}
	})
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// powered is a node with its servers, after a boot.
type powered struct {
	s       *network
	n       *node
	boot    *guest.Boot
	volumes []*kept
}

// placed has a directory of its own for what a test keeps.
type placed struct {
	testing.TB
	dir string
}

func (p placed) TempDir() string { return p.dir }

func newPowered(t *testing.T, b *guest.Boot) *powered {
	t.Helper()
	s := newNetwork(t)
	s.sh("for d in " + nodeDisk + " " + storageDisk + " " + ext4Disk + "; do blkid $d || mkfs.ext4 -q $d; done")
	b.Say(t, "up")
	s.disk(nodeDisk, nodeTop)
	s.disk(storageDisk, "/srv/exports")
	b.Say(t, "has disks")
	(&nfsServer{s}).serve()
	b.Say(t, "serves")
	top := filepath.Join(nodeTop, "k")
	s.sh("mkdir -p " + top + " " + images + "; rm -rf " + nodeTop + "/run")
	return &powered{s: s, boot: b, n: &node{KubeletDir: testenv.Kubelet(placed{t, top}), t: t, dir: nodeTop}}
}

// disk mounts a disk that needs no repair but its journal's.
func (n *network) disk(device, dir string) {
	n.t.Helper()
	n.sh("mkdir -p " + dir + "; mount " + device + " " + dir + "; umount " + dir + "; e2fsck -fn " + device + "; mount " + device + " " + dir)
}

// bridgedTwice starts the bridge with two CSI drivers, of NFS and of disk images that have to be
// attached.
func (n *node) bridgedTwice() {
	n.t.Helper()
	n.configure("k8s/nfs", "k8s-nfs", "nfs")
	config, err := os.ReadFile(n.path("config.yaml"))
	if err != nil {
		n.t.Fatal(err)
	}
	socket := images + "/csi.sock"
	more := "- flexDriver: example.com/disk\n  csiDriver: disk.csi.example.com\n  endpoint: " + socket + "\n  controllerEndpoint: " + socket + "\n"
	if err := os.WriteFile(n.path("config.yaml"), append(config, more...), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.alone("example.com/disk", "--backend", "csi", "--socket", n.bridge.Socket(), "--state-dir", n.bridge.StateDir())
	cmd := exec.Command(os.Args[0], "--dir", images, "--name", "disk.csi.example.com", "--node-id", "node-1", "--attach", "--volume", "ext4=64Mi", "--volume", "xfs=300Mi")
	cmd.Env = append(os.Environ(), envImages+"=1")
	n.start(cmd, socket)
	n.startCSI()
	n.startBridge()
}

func (p *powered) add(driver, name, fsType, disk string, options map[string]string) {
	k := &kept{volume: p.n.newVolume(driver, name, fsType, options, nil), boot: p.boot, disk: disk}
	k.random = rand.New(rand.NewPCG(p.boot.Seed, uint64(len(p.volumes))))
	for _, line := range p.boot.Said {
		if n, is := strings.CutPrefix(line, k.name()+" synced "); is {
			k.synced, _ = strconv.Atoi(n) // it wrote that itself
		}
	}
	p.volumes = append(p.volumes, k)
}

// all has all volumes do something at the same time.
func (p *powered) all(what string, do func(k *kept)) {
	p.n.t.Run(what, func(t *testing.T) {
		for _, k := range p.volumes {
			t.Run(k.name(), func(t *testing.T) {
				t.Parallel()
				n := *p.n
				n.t = t
				k.n = &n
				do(k)
			})
		}
	})
}
