package main

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/flex2csi/flex2csi/test/bridgetest"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envMain makes the test binary the driver.
const envMain = "GCEPD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(run(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}

func startDriver(b *bridgetest.Bridge) *daemon.Process {
	cmd := exec.Command(os.Args[0], "--dir", b.Path("disks"), "--disk", "disk-1", "--endpoint", b.Endpoint())
	cmd.Env = append(os.Environ(), envMain+"=1")
	return b.Start(cmd)
}

func newBridge(t *testing.T) *bridgetest.Bridge {
	t.Helper()
	testenv.Need(t, "ext4")
	b := bridgetest.New(t) // which looks for loop devices in the end
	b.Serve("pd.csi.storage.gke.io", "controllerEndpoint: "+b.Endpoint())
	return b
}

func disk(b *bridgetest.Bridge) *bridgetest.Volume {
	return b.Volume("pv-1", "ext4", map[string]string{"volumeID": "projects/test-project/zones/country-region-zone/disks/disk-1"})
}

func TestLife(t *testing.T) {
	for name, attach := range map[string]bool{"attach=false": false, "attach=true": true} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t)
			startDriver(b)
			disk(b).Life(attach)
		})
	}
}

// TestDeath: disks stay attached when the driver dies, as on a virtual machine.
func TestDeath(t *testing.T) {
	b := newBridge(t)
	driver := startDriver(b)
	v := disk(b)
	v.Mount("pod-a")
	if err := driver.End(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	startDriver(b)
	v.Mount("pod-b")
	v.Unmount("pod-a")
	v.Unmount("pod-b")
	b.WantNothing()
}
