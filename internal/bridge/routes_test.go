package bridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestAuto: who attaches if the configuration leaves it open.
func TestAuto(t *testing.T) {
	const (
		nodeOnly   = "NodeStage NodePublish"
		controller = "ControllerPublish NodeStage NodePublish"
	)
	for _, tt := range []struct {
		name                 string
		need                 bridge.AttachNeed
		access               bool // to the cluster
		endpoint, controller bool // of a controller: configured, said to exist
		want, cluster        string
	}{
		{"no access, no controller", "", false, false, true, nodeOnly, ""},
		{"no access, controller", "", false, true, true, controller, ""},
		{"the controller comes first", bridge.NeedAttach, true, true, true, controller, ""},
		{"CSIDriver says so", bridge.NeedAttach, true, false, false, nodeOnly, "Attach"},
		{"CSIDriver says no", bridge.NeedNoAttach, true, false, true, nodeOnly, ""},
		{"no CSIDriver, a controller somewhere", bridge.NeedByController, true, false, true, nodeOnly, "Attach"},
		{"no CSIDriver, no controller", bridge.NeedByController, true, false, false, nodeOnly, ""},
	} {
		n := newClusterNode(t)
		d := n.bridge.Drivers.All[0]
		d.Attach, d.Policy = bridgeconfig.AttachAuto, fixed(bridge.Policy{Attach: tt.need})
		if !tt.access {
			d.Attacher = nil
		}
		n.driver.features.Attach, n.driver.features.Controller, n.driver.inCluster = tt.endpoint, tt.controller, tt.cluster != ""
		n.succeed("mount", n.podDir("p1"), options)
		if got := n.driver.called(); got != tt.want {
			t.Errorf("%s: the driver was called %s, want %s", tt.name, got, tt.want)
		}
		if got := n.cluster.called(); got != tt.cluster {
			t.Errorf("%s: the cluster was called %q, want %q", tt.name, got, tt.cluster)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	}
}

// TestAttachRequiredFalse: a configuration that contradicts the CSIDriver object.
func TestAttachRequiredFalse(t *testing.T) {
	n := newClusterNode(t)
	n.bridge.Drivers.All[0].Policy = fixed(bridge.Policy{Attach: bridge.NeedNoAttach})
	n.fail("attachRequired: false", "mount", n.podDir("p1"), options)
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s", got)
	}
	n.empty()
}

// TestPolicyIsNotKnown: before the CSIDriver object was ever read nothing is
// mounted that it may have to say something about; what is mounted goes.
func TestPolicyIsNotKnown(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.bridge.Drivers.All[0].Policy = func(context.Context) (bridge.Policy, error) {
		return bridge.Policy{}, flex.Errorf(flex.CodeUnavailable, "the CSIDriver object has not been read yet")
	}
	n.fail("not been read", "mount", n.podDir("p2"), options)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestDetachedAsAttached: the configuration has changed under a volume.
func TestDetachedAsAttached(t *testing.T) {
	t.Run("from the controller to the cluster", func(t *testing.T) {
		n := newClusterNode(t)
		n.driver.features.Attach = true
		n.bridge.Drivers.All[0].Attach = bridgeconfig.AttachController
		n.succeed("mount", n.podDir("p1"), options)
		n.start("boot-1")
		n.driver.features.Attach = false
		n.succeed("mount", n.podDir("p2"), options)
		n.succeed("unmount", n.podDir("p1"))
		n.driver.called()
		n.succeed("unmount", n.podDir("p2"))
		if got := n.driver.called() + n.cluster.called(); !strings.HasSuffix(got, "ControllerUnpublish") {
			t.Errorf("called %s", got)
		}
		n.empty()
	})
	t.Run("from the cluster to the controller", func(t *testing.T) {
		n := newClusterNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		n.bridge.Drivers.All[0].Attach = bridgeconfig.AttachController
		n.driver.features.Attach = true
		n.succeed("unmount", n.podDir("p1"))
		if got, want := n.cluster.called(), "Attach Detach"; got != want {
			t.Errorf("called %s, want %s", got, want)
		}
		n.empty()
	})
	t.Run("half attached by the controller", func(t *testing.T) {
		n := newClusterNode(t)
		n.driver.features.Attach = true
		n.bridge.Drivers.All[0].Attach = bridgeconfig.AttachController
		n.driver.fail["ControllerPublish"] = []error{final(flex.CodeDeadlineExceeded, "late")}
		n.fail("late", "mount", n.podDir("p1"), options)
		n.start("boot-1")
		n.driver.features.Attach = false
		n.fail("by a different method", "mount", n.podDir("p1"), options)
		if got := n.cluster.called(); got != "" {
			t.Errorf("called %s", got)
		}
		n.driver.features.Attach = true
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	})
	t.Run("half attached by the cluster", func(t *testing.T) {
		n := newClusterNode(t)
		n.hurried()
		n.cluster.slow["Attach"] = true
		n.fail("still attaching", "mount", n.podDir("p1"), options)
		n.bridge.Drivers.All[0].Attach = bridgeconfig.AttachController
		n.driver.features.Attach = true
		n.cluster.hurry()
		n.succeed("mount", n.podDir("p1"), options)
		if got := n.driver.called(); strings.Contains(got, "Controller") {
			t.Errorf("the driver was called %s", got)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.empty()
	})
	t.Run("access was taken away", func(t *testing.T) {
		n := newClusterNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		n.bridge.Drivers.All[0].Attacher = nil
		n.succeed("unmount", n.podDir("p1"))
		n.wait()
		if r := n.record(); r.Attach != volstate.Undoing || !strings.Contains(r.LastError, "--in-cluster") {
			t.Errorf("%+v", r)
		}
		n.fail("--in-cluster", "mount", n.podDir("p1"), options)
		n.wait() // for what it undoes by itself
		n.start("boot-1")
		n.settle()
		n.empty()
	})
}

// TestTakenOverInCluster: the attachment is the control plane's by now.
func TestTakenOverInCluster(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.takeOver()
	n.kubeletMounts("p1", "pv1")
	n.cluster.called()
	n.succeed("unmount", n.podDir("p1"))
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s", got)
	}
	if records, _, _ := n.store.Load(); len(records) > 0 {
		t.Errorf("the record is left: %+v", records[0])
	}
}

// TestKilledInCluster: the process ends with any write of a life of mount,
// unmount, and mount again; whatever is called next, and if nothing is, nothing
// stays, and nothing is detached that is staged.
func TestKilledInCluster(t *testing.T) {
	writes := 0
	life := func(n *clusterNode) {
		dir := n.podDir("p1")
		n.call("mount", dir, options)
		n.cluster.set(func() { n.cluster.slow["Detach"] = true })
		n.call("unmount", dir)
		n.wait()
		n.cluster.hurry()
		n.call("mount", dir, options)
	}
	whole := newClusterNode(t)
	whole.hurried()
	recorder := &recording{RecordStore: whole.store}
	whole.bridge.State = recorder
	life(whole)
	if writes = len(recorder.records); writes < 10 {
		t.Fatalf("only %d writes", writes)
	}
	for stop := 1; stop <= writes; stop++ {
		for _, then := range []string{"mount", "unmount", "nothing"} {
			n := newClusterNode(t)
			n.hurried()
			n.bridge.State = &recording{RecordStore: n.store, stop: stop}
			life(n)
			n.start("boot-1")
			n.bridge.FinishDetaches()
			dir := n.podDir("p1")
			switch then {
			case "mount":
				n.succeed("mount", dir, options)
				n.succeed("unmount", dir)
			case "unmount":
				n.succeed("unmount", dir)
			default:
				n.mounts.set(dir, false) // of a mount that was not answered the kubelet knows nothing
				n.rewriteAged()
				n.settle()
				n.settle()
			}
			if err := n.bridge.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			n.wait()
			n.empty()
			if t.Failed() {
				t.Fatalf("killed with write %d of %d, then %s", stop, writes, then)
			}
		}
	}
}

// rewriteAged makes all pods gone, and all that is known older than the grace
// period.
func (n *clusterNode) rewriteAged() {
	n.wait()
	records, _, err := n.store.Load()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, r := range records {
		for _, target := range r.Targets {
			target.Since, target.Bound = time.Now().Add(-time.Hour), false
		}
		if err := n.store.Put(r); err != nil {
			n.t.Fatal(err)
		}
	}
	n.start("boot-1")
	n.bridge.Grace = 1
}

// TestNodesOfAVolume: a failed mount that is not the cluster's fault is undone.
func TestFailedMountInCluster(t *testing.T) {
	n := newClusterNode(t)
	n.driver.fail["NodeStage"] = []error{final(flex.CodeInternal, "no")}
	n.fail("no", "mount", n.podDir("p1"), options)
	if got, want := n.cluster.called(), "Attach Detach"; got != want {
		t.Errorf("called %s, want %s", got, want)
	}
	n.empty()
}

// TestModes: what the PersistentVolume has, and what of it is compared.
func TestModes(t *testing.T) {
	n := newClusterNode(t)
	d := n.bridge.Drivers.All[0]
	d.Map = withModes() // the API server is away
	n.succeed("mount", n.podDir("p1"), options)
	if got := n.cluster.asked[0].AccessModes; len(got) != 1 || got[0] != csivol.ReadWriteOnce {
		t.Errorf("without the PersistentVolume the modes are %v", got)
	}
	d.Map = withModes(csivol.ReadWriteMany) // and is back
	n.succeed("mount", n.podDir("p2"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.succeed("mount", n.podDir("p1"), options)
	d.Map = withModes(csivol.ReadOnlyMany) // another configuration
	n.succeed("mount", n.podDir("p2"), options)
	n.fail("access mode", "mount", strings.Replace(n.podDir("p3"), "pv1", "pv2", 1), strings.Replace(options, `"pv1"`, `"pv2"`, 1))
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

var errAway = errors.New("away")

// TestAPIAway: what is attached goes on without the API server.
func TestAPIAway(t *testing.T) {
	n := newClusterNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	var away []error
	for range 100 {
		away = append(away, &flex.Error{Code: flex.CodeUnavailable, Err: errAway})
	}
	n.cluster.set(func() { n.cluster.fail["Attach"], n.cluster.fail["Detach"] = away, away })
	n.cluster.called()
	n.succeed("mount", n.podDir("p2"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.start("boot-1") // restarted meanwhile
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("unmount", n.podDir("p1"))
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s", got)
	}
	n.succeed("unmount", n.podDir("p2"))
	n.settle()
	n.cluster.set(func() { clear(n.cluster.fail) })
	n.settle()
	n.empty()
}
