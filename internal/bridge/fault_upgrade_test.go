package bridge_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestUpgradeDropsStage: a driver was upgraded to a version without
// STAGE_UNSTAGE_VOLUME while a pod has what it staged. The next mount forgot the
// stage: it stayed on the node, under a volume that was detached.
func TestUpgradeDropsStage(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		n := newNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		staging := n.driver.staging
		n.driver.features.Stage, n.driver.unstages = false, true
		if restarted {
			n.start("boot-1")
		}
		n.driver.called()
		n.succeed("mount", n.podDir("p2"), options)
		n.expect("another pod", "NodePublish")
		if n.driver.staging != staging {
			t.Errorf("published from %q, and it is staged at %q", n.driver.staging, staging)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.succeed("unmount", n.podDir("p2"))
		n.expect("ended", "NodeUnpublish NodeUnpublish NodeUnstage ControllerUnpublish")
		n.empty()
		n.succeed("mount", n.podDir("p3"), options)
		n.expect("from then on", "ControllerPublish NodePublish")
		if n.driver.staging != "" {
			t.Errorf("published from %q, and nothing is staged", n.driver.staging)
		}
		n.succeed("unmount", n.podDir("p3"))
		n.empty()
	}
}

// TestUpgradeDropsUnstage: the driver leaves the mount and has no RPC to remove it.
// It is not detached under that.
func TestUpgradeDropsUnstage(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.driver.features.Stage = false
	n.succeed("mount", n.podDir("p2"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.driver.called()
	n.succeed("unmount", n.podDir("p2"))
	if r := n.record(); !strings.Contains(r.LastError, "still mounted") {
		t.Errorf("the record is %+v", r)
	}
	n.expect("it is staged", "NodeUnpublish NodeUnstage")
	n.driver.features.Stage = true // and is downgraded again
	n.reconcile()
	n.empty()
}

// TestUpgradeUncertain: a NodeStageVolume of the version before may have been done.
func TestUpgradeUncertain(t *testing.T) {
	n := newNode(t)
	n.driver.fail["NodeStage"] = []error{final(flex.CodeUnavailable, "it is being upgraded")}
	n.driver.after["NodeStage"] = true
	n.succeedNot("mount", n.podDir("p1"), options)
	n.driver.features.Stage, n.driver.unstages = false, true
	n.driver.called()
	n.succeed("mount", n.podDir("p1"), options)
	n.expect("undone first", "NodeUnstage NodePublish")
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}
