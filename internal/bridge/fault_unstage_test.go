package bridge_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestUnstageFails (N8): the driver could not unstage, or not detach, and the pod stayed
// Terminating for as long, though nothing of it was mounted any more. The kubelet's CSI
// plugin lets such a pod go.
func TestUnstageFails(t *testing.T) {
	for _, method := range []string{"NodeUnstage", "ControllerUnpublish"} {
		for _, next := range []bool{false, true} { // another pod comes before it is unstaged
			n := newNode(t)
			n.succeed("mount", n.podDir("p1"), options)
			fail := final(flex.CodeInternal, "device is busy")
			n.driver.fail[method] = []error{fail, fail, fail}
			n.driver.called()
			n.succeed("unmount", n.podDir("p1"))
			if got := n.driver.called(); method == "NodeUnstage" && strings.Contains(got, "ControllerUnpublish") {
				t.Errorf("detached under a stage: %s", got)
			}
			r := n.record()
			if len(r.Targets) > 0 || (r.Stage != volstate.Undoing && r.Attach != volstate.Undoing) || !strings.Contains(r.LastError, "busy") {
				t.Errorf("the record is %+v", r)
			}
			n.reconcile() // twice, and within the grace period
			if got, want := strings.Count(n.driver.called(), method), 2; got != want {
				t.Errorf("the reconciler called %s %d times, want %d", method, got, want)
			}
			if next {
				n.succeed("mount", n.podDir("p2"), options)
				n.succeed("unmount", n.podDir("p2"))
			}
			n.start("boot-1")
			n.reconcile()
			n.empty()
		}
	}
}
