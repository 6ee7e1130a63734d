package bridge_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestInherited: the driver is still at a call of the daemon before, which ended with
// it, and says so to the next one.
func TestInherited(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.driver.fail["NodeStage"] = []error{final(flex.CodeUnavailable, "the connection broke")}
	n.succeedNot("mount", dir, options)
	n.start("boot-1")
	n.driver.called()
	busy := final(flex.CodeAborted, "an operation on the volume is pending")
	n.driver.fail["NodeStage"] = []error{busy, busy}
	n.succeed("mount", dir, options)
	n.expect("asked until it is done", "NodeStage NodeStage NodeStage NodePublish")
	n.driver.fail["NodeUnpublish"] = []error{busy}
	n.succeedNot("unmount", dir) // not for the sake of an earlier process: the kubelet calls again
	n.expect("asked once", "NodeUnpublish")
	n.succeed("unmount", dir)
	n.empty()
}
