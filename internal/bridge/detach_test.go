package bridge_test

import (
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestSlowDetachIsNotWaitedFor: the caller of unmount has less time than there
// is for a detach.
func TestSlowDetachIsNotWaitedFor(t *testing.T) {
	n := newClusterNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.cluster.set(func() { n.cluster.slow["Detach"] = true })
	n.bridge.DetachWait = 0
	n.bridge.Drivers.All[0].Timeout = 20 * time.Millisecond
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	d.Timeout = func(flex.Command) time.Duration { return 4 * time.Second }
	if s := flex.Run(t.Context(), d, []string{"unmount", dir}); s.Status != flex.StatusSuccess {
		t.Errorf("%+v", s)
	}
	n.cluster.hurry()
	n.settle()
	n.empty()
}

// TestUnmountDoesNotWaitForDetach: whatever keeps the detach, the pod goes, the
// record stays, and the volume is detached in the end, once.
func TestUnmountDoesNotWaitForDetach(t *testing.T) {
	away := flex.Errorf(flex.CodeUnavailable, "no API server")
	for _, why := range []string{"slow", "away", "away, and the request arrives"} {
		for _, then := range []string{"reconcile", "restart", "mount", "mount of another kind", "reboot"} {
			n := newClusterNode(t)
			n.hurried()
			dir := n.podDir("p1")
			n.succeed("mount", dir, options)
			n.cluster.set(func() {
				n.cluster.slow["Detach"] = why == "slow"
				n.cluster.after["Detach"] = strings.Contains(why, "arrives")
				if why != "slow" {
					n.cluster.fail["Detach"] = []error{away, away}
				}
			})
			n.succeed("unmount", dir)
			n.wait()
			if r := n.record(); r.Attach != volstate.Undoing || r.Object != objectName || len(r.Targets) > 0 || r.Stage != volstate.None {
				t.Errorf("%s: the record is %+v", why, r)
			}
			n.cluster.hurry()
			switch then {
			case "reconcile":
				n.settle()
			case "restart", "reboot":
				n.start(map[string]string{"restart": "boot-1", "reboot": "boot-2"}[then])
				n.bridge.FinishDetaches()
			case "mount", "mount of another kind":
				n.cluster.called()
				asked := options
				if then != "mount" {
					asked = strings.Replace(options, "ext4", "xfs", 1)
				}
				n.succeed("mount", dir, asked)
				// Never without the detach: what is seen may be about to go.
				if got, want := n.cluster.called(), "Detach Attach"; got != want {
					t.Errorf("%s: mount called %s, want %s", why, got, want)
				}
				n.succeed("unmount", dir)
			}
			n.empty()
			if t.Failed() {
				t.Fatalf("%s, then %s", why, then)
			}
		}
	}
}

// TestMountDuringADetach: a mount that cannot be completed before the detach is.
func TestMountDuringADetach(t *testing.T) {
	n := newClusterNode(t)
	n.hurried()
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.cluster.set(func() { n.cluster.slow["Detach"] = true })
	n.succeed("unmount", dir)
	n.fail("still detaching", "mount", dir, options)
	if mounted, _ := n.mounts.Mounted(dir); mounted {
		t.Error("it is mounted, and about to be detached")
	}
	n.cluster.hurry()
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.empty()
}
