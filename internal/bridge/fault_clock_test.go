package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestClockIsSetMeanwhile: the wall clock was set back by an hour, and for an hour nothing that
// was left half-done was undone: the times of records had no monotonic clock reading. What is
// only on the disk has none: it gets one at the start.
func TestClockIsSetMeanwhile(t *testing.T) {
	n := newNode(t)
	monotonic := func(when string) {
		t.Helper()
		for _, s := range n.bridge.Status() {
			times := map[string]time.Time{"changed": s.Record.Changed, "uncertain": s.UncertainSince}
			for dir, target := range s.Record.Targets {
				times[dir] = target.Since
			}
			for what, at := range times {
				if !strings.Contains(at.String(), " m=") {
					t.Errorf("%s: %s is %v, of the wall clock", when, what, at)
				}
			}
		}
		if records, _, _ := n.store.Load(); len(records) == 0 || !strings.HasSuffix(records[0].Changed.String(), "UTC") {
			t.Errorf("%s: on the disk are %v", when, records)
		}
	}
	dir := n.podDir("p1")
	n.driver.fail["NodePublish"], n.driver.after["NodePublish"] = []error{final(flex.CodeAborted, "test")}, true
	n.call("mount", dir, options)
	monotonic("failed")
	n.start("boot-1")
	monotonic("restarted")
	n.loseRecords()
	n.driver.fail["NodePublish"] = []error{final(flex.CodeAborted, "test")}
	n.call("mount", n.podDir("p2"), options)
	monotonic("lost")
	n.start("boot-2")
	monotonic("rebooted")
}
