package fusedriver_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/bridgetest"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/fusedriver"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envMain makes the test binary the driver.
const envMain = "FUSEDRIVER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(fusedriver.Main(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}

func startDriver(b *bridgetest.Bridge) *daemon.Process {
	cmd := exec.Command(os.Args[0], "--dir", b.Path("data"), "--endpoint", b.Endpoint())
	cmd.Env = append(os.Environ(), envMain+"=1")
	return b.Start(cmd)
}

func newBridge(t *testing.T) *bridgetest.Bridge {
	t.Helper()
	testenv.Need(t, "mount", "fuse")
	b := bridgetest.New(t)
	b.Serve("fuse.csi.example.com")
	return b
}

func TestLife(t *testing.T) {
	for name, attach := range map[string]bool{"attach=false": false, "attach=true": true} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t)
			startDriver(b)
			b.Volume("pv-1", "", map[string]string{"volumeID": "vol-1"}).Life(attach)
			if entries, err := os.ReadDir(b.Path("data/vol-1")); err != nil || len(entries) != 1 {
				t.Errorf("the driver has %v, %v; want the file that the pod wrote", entries, err)
			}
		})
	}
}

// TestDeath: what is mounted dies with the driver, can be taken away by the
// next one, and is whole when it is mounted again.
func TestDeath(t *testing.T) {
	b := newBridge(t)
	driver := startDriver(b)
	v := b.Volume("pv-1", "", map[string]string{"volumeID": "vol-1"})
	dir := v.Mount("pod-a")
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := driver.End(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadDir(dir); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("after the driver's death a pod reads: %v", err)
	}
	startDriver(b)
	v.Unmount("pod-a")
	b.WantNothing()
	if got, err := os.ReadFile(filepath.Join(v.Mount("pod-b"), "file")); err != nil || string(got) != "data" {
		t.Errorf("the next pod reads %q, %v", got, err)
	}
	v.Unmount("pod-b")
	b.WantNothing()
}
