package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestExpand(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	if s := n.call("expandvolume", options, "", "2000", "1000"); s.Status != flex.StatusFailure || n.driver.called() != "" {
		t.Errorf("expandvolume, which is half of it: %+v", s)
	}
	n.succeed("expandfs", options, "", dir, "2000", "1000")
	if got, want := n.driver.called(), "ControllerExpand NodeExpand"; got != want {
		t.Errorf("expandfs called %s, want %s", got, want)
	}
	n.succeed("expandfs", options, "", dir, "2000", "1000")
	if got := n.driver.called(); got != "" {
		t.Errorf("a second expandfs called %s, want nothing", got)
	}
	if s := n.call("expandfs", options, "", dir, "500", "1000"); s.Status != flex.StatusFailure {
		t.Errorf("shrinking: %+v", s)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestExpandTwice: an expansion to another size is another expansion.
func TestExpandTwice(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.driver.called()
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	d.Timeout = func(flex.Command) time.Duration { return 20 * time.Millisecond }
	n.driver.mu.Lock() // the driver hangs
	for _, size := range []string{"2000", "3000"} {
		if s := flex.Run(t.Context(), d, []string{"expandfs", options, "", dir, size, "1000"}); !strings.Contains(s.Message, "still in progress") {
			t.Errorf("expandfs to %s with a driver that hangs: %+v", size, s)
		}
	}
	n.driver.mu.Unlock()
	n.succeed("expandfs", options, "", dir, "3000", "1000")
	if got, want := n.driver.called(), "ControllerExpand NodeExpand ControllerExpand NodeExpand"; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	if got := n.bridge.Records()[0].ExpandSize; got != 3000 {
		t.Errorf("expanded to %d, want 3000", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestExpandOnNodeOnly: then no controller has expanded the volume.
func TestExpandOnNodeOnly(t *testing.T) {
	n := newNode(t)
	n.driver.features.ControllerExpand = false
	n.mounts.bytes = 2000
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("expandfs", options, "", n.podDir("p1"), "2000", "1000")
	if got := n.driver.called(); !strings.HasSuffix(got, "NodePublish NodeExpand") {
		t.Errorf("called %s", got)
	}
}

// TestExpandUnused: a driver that expands a volume only while it is not in use. The
// kubelet does not call then, so the claim and its pods would wait forever.
func TestExpandUnused(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	refused := final(flex.CodeFailedPrecondition, "in use")
	n.driver.fail["ControllerExpand"] = []error{refused}
	if s := n.call("expandfs", options, "", dir, "2000", "1000"); !strings.Contains(s.Message, "when the last one is gone") {
		t.Errorf("expandfs: %+v", s)
	}
	n.driver.called()
	n.succeed("unmount", dir)
	if got := n.driver.called(); !strings.HasSuffix(got, "NodeUnstage ControllerUnpublish ControllerExpand") {
		t.Errorf("unmount called %s", got)
	}
	n.empty()
}

// TestExpandUnusedFails: a pod ends all the same.
func TestExpandUnusedFails(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	refused := final(flex.CodeFailedPrecondition, "in use")
	n.driver.fail["ControllerExpand"] = []error{refused, refused}
	n.call("expandfs", options, "", dir, "2000", "1000")
	n.succeed("unmount", dir)
	n.empty()
}
