package bridge_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// shares adds a CSI driver for volumes of the same FlexVolume driver with fsType ceph.
func (n *node) shares(also *fakeDriver) {
	n.bridge.Drivers.All = append(n.bridge.Drivers.All, &bridge.FlexDriver{Name: flexDriver, CSIDriver: "share.csi.example.com", Service: also, Map: func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.Driver, v.Handle = "share.csi.example.com", "share-"+v.Handle
		return v, err
	}})
	n.bridge.Drivers.Choose = func(name string, o flex.Options) (int, error) {
		switch {
		case name != flexDriver:
			return -1, flex.Errorf(flex.CodeFailedPrecondition, "no driver %s", name)
		case o.FSType == "ceph":
			return 1, nil
		case o.FSType == "ext4":
			return 0, nil
		}
		return -1, flex.Errorf(flex.CodeInvalidArgument, "of no CSI driver")
	}
}

// TestTwoCSIDrivers: two volumes of one FlexVolume driver, of two CSI drivers, live side by
// side, also through a restart of the daemon: a call to unmount has no options.
func TestTwoCSIDrivers(t *testing.T) {
	n := newNode(t)
	other := newFakeDriver(n.mounts)
	other.features.Name = "share.csi.example.com"
	n.shares(other)
	share := strings.NewReplacer(`"ext4"`, `"ceph"`, `"pv1"`, `"pv2"`).Replace(options)
	disk, shared := n.podDir("p1"), filepath.Join(filepath.Dir(n.podDir("p2")), "pv2")
	if err := os.MkdirAll(filepath.Dir(shared), 0o750); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n.succeed("mount", disk, options)
		n.succeed("mount", shared, share)
	}
	if got := other.clean(); !strings.Contains(got, "share-h1") || strings.Contains(n.driver.clean(), "share-h1") {
		t.Errorf("the share's driver has %q, the disk's %q", got, n.driver.clean())
	}
	if s := n.call("mount", n.podDir("p3"), strings.Replace(options, `"ext4"`, `"zfs"`, 1)); s.Status != flex.StatusFailure || s.Message != "of no CSI driver" {
		t.Errorf("a volume of no CSI driver: %+v", s)
	}
	n.start("boot-1")
	n.shares(other)
	n.succeed("expandfs", share, "", shared, "2000", "1000")
	if got := other.called(); !strings.Contains(got, "Expand") {
		t.Errorf("the share's driver was asked %q", got)
	}
	n.succeed("unmount", shared)
	if left := other.clean(); left != "" {
		t.Errorf("the share's driver still has: %s", left)
	}
	if n.driver.clean() == "" {
		t.Error("the disk's driver has lost its volume")
	}
	n.succeed("unmount", disk)
	n.empty()
}

// TestTwoCSIDriversRecords: a record names the CSI driver of its volume, which alone is asked.
func TestTwoCSIDriversRecords(t *testing.T) {
	n := newNode(t)
	other := newFakeDriver(n.mounts)
	other.features.Name = "share.csi.example.com"
	n.shares(other)
	n.succeed("mount", n.podDir("p1"), strings.Replace(options, `"ext4"`, `"ceph"`, 1))
	if got := n.bridge.Drivers.Names(); len(got) != 1 || got[0] != flexDriver {
		t.Errorf("names: %v", got)
	}
	for _, r := range n.bridge.Records() {
		if r.Driver != "share.csi.example.com" || r.FlexDriver != flexDriver {
			t.Errorf("record of %s, %s", r.FlexDriver, r.Driver)
		}
	}
	n.succeed("unmount", n.podDir("p1"))
	if left := other.clean(); left != "" || n.driver.called() != "" {
		t.Errorf("left %q, the disk's driver was asked %q", left, n.driver.called())
	}
}
