package main

import (
	"os"
	"os/exec"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/bridgetest"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envMain makes the test binary the driver.
const envMain = "MOCK_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(run(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}

// newBridge returns a node with the daemon and the mock driver on it.
func newBridge(t *testing.T, args ...string) *bridgetest.Bridge {
	t.Helper()
	testenv.Need(t, "mount")
	b := bridgetest.New(t)
	b.Serve("mock.csi.example.com", "controllerEndpoint: "+b.Endpoint())
	cmd := exec.Command(os.Args[0], append([]string{
		"--endpoint", b.Endpoint(), "--faults", b.Path("faults"), "--call-log", b.Path("calls"),
	}, args...)...)
	cmd.Env = append(os.Environ(), envMain+"=1")
	b.Start(cmd)
	t.Cleanup(func() { wantNothingLeft(t, b) })
	return b
}

// wantNothingLeft asks the driver's log of calls.
func wantNothingLeft(t *testing.T, b *bridgetest.Bridge) {
	t.Helper()
	list, err := calls.Read(b.Path("calls"))
	if left := calls.Leftovers(list); err != nil || len(left) > 0 {
		t.Errorf("never undone: %q, %v", left, err)
	}
}

func TestLife(t *testing.T) {
	for name, attach := range map[string]bool{"attach=false": false, "attach=true": true} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t)
			v := b.Volume("pv-1", "", map[string]string{"volumeID": "1"})
			v.Apart = true
			v.Life(attach)
		})
	}
}

// TestFaults: the interceptor is in the way of the mock driver's calls, too.
func TestFaults(t *testing.T) {
	b := newBridge(t, "--attach=false")
	v := b.Volume("pv-1", "", map[string]string{"volumeID": "1"})
	if err := fault.WriteFile(b.Path("faults"), fault.Rule{Method: "NodePublishVolume", After: true, Code: codes.Internal, Times: 1}); err != nil {
		t.Fatal(err)
	}
	if status := v.TryMount("pod-a"); status.Status != flex.StatusFailure {
		t.Errorf("mount answered %+v", status)
	}
	b.WantNothing()
	v.Mount("pod-a")
	v.Unmount("pod-a")
	b.WantNothing()
}
