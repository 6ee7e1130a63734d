package bridge_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestLargePublishContext (N10): a driver answers with more than a record can hold. It is
// refused, and what was attached is detached: clipped, NodeStageVolume would get another
// one.
func TestLargePublishContext(t *testing.T) {
	large := map[string]string{"device": "d", "x": strings.Repeat("x", 1<<20)}
	n := newNode(t)
	n.driver.publishContext = large
	if s := n.call("mount", n.podDir("p1"), options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "publish context") {
		t.Errorf("mount: %+v", s)
	}
	n.empty()
	c := newClusterNode(t)
	c.cluster.context = large
	if s := c.call("mount", c.podDir("p1"), options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "publish context") {
		t.Errorf("mount: %+v", s)
	}
	if got := c.driver.called(); got != "" {
		t.Errorf("called %s", got)
	}
	c.cluster.context = map[string]string{"device": "d"}
	c.succeed("mount", c.podDir("p1"), options)
	c.succeed("unmount", c.podDir("p1"))
	c.empty()
}
