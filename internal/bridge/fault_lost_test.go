package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// lostDevice returns a node with attach: true that has a volume staged for a pod, and
// has lost its records.
func lostDevice(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	n.succeed("mount", n.podDir("p1"), options)
	if err := os.MkdirAll(n.podDir("p1"), 0o750); err != nil {
		t.Fatal(err)
	}
	n.loseRecords()
	return n
}

// reads lets the daemon read PersistentVolume pv1.
func (n *node) reads(handle string, err error) {
	n.bridge.Drivers.All[0].Read = func(_ context.Context, name string) (*csivol.Volume, error) {
		return &csivol.Volume{FlexDriver: flexDriver, Driver: "csi.example.com", Handle: handle, Name: name, FSType: "ext4"}, err
	}
}

// TestUnmountDeviceOfALostRecord (N2): unmountdevice of a directory that no record had
// answered Success while the volume was staged, and kube-controller-manager detached it
// under a mounted filesystem.
func TestUnmountDeviceOfALostRecord(t *testing.T) {
	refuse := func(n *node, when string) {
		t.Helper()
		s := n.call("unmountdevice", n.deviceDir())
		if s.Status != flex.StatusFailure || !strings.Contains(s.Message, "start a pod") {
			t.Errorf("%s: %+v", when, s)
		}
		if !n.mounts.mounted[n.deviceDir()] {
			t.Errorf("%s: the marker is gone, and the kubelet will not call again", when)
		}
	}
	t.Run("without access to the cluster", func(t *testing.T) {
		n := lostDevice(t)
		refuse(n, "a pod has it")
		n.succeed("unmount", n.podDir("p1"))
		refuse(n, "staged")
		n.reads("h1", errors.New("the API server is away"))
		refuse(n, "not known")
		clear(n.driver.published)
		n.succeed("mount", n.podDir("p2"), options) // as the error says
		n.succeed("unmount", n.podDir("p2"))
		n.succeed("unmountdevice", n.deviceDir())
		n.empty()
	})
	t.Run("cannot be looked at", func(t *testing.T) {
		n := lostDevice(t)
		n.succeed("unmount", n.podDir("p1"))
		staged := filepath.Join(filepath.Dir(n.takeOver()), "globalmount")
		if err := os.Remove(filepath.Join(filepath.Dir(staged), "vol_data.json")); err != nil {
			t.Fatal(err)
		}
		n.mounts.set(staged, false)
		n.mounts.fail["Mounted "+staged] = errors.New("no mount table")
		refuse(n, "unknown")
	})
	t.Run("by its PersistentVolume", func(t *testing.T) {
		n := lostDevice(t)
		n.reads("h1", nil)
		if s := n.call("unmountdevice", n.deviceDir()); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "unmount comes before") {
			t.Errorf("while a pod has it: %+v", s)
		}
		n.succeed("unmount", n.podDir("p1"))
		n.driver.called()
		n.succeed("unmountdevice", n.deviceDir())
		n.expect("staged", "NodeUnstage")
		clear(n.driver.attached) // kube-controller-manager does that
		n.empty()
	})
	t.Run("another volume is staged", func(t *testing.T) {
		n := lostDevice(t)
		n.succeed("unmount", n.podDir("p1"))
		n.driver.called()
		n.reads("h2", nil)
		n.succeed("unmountdevice", n.deviceDir())
		n.expect("another", "")
	})
	t.Run("of the kubelet's CSI plugin", func(t *testing.T) {
		n := lostDevice(t)
		n.succeed("unmount", n.podDir("p1"))
		n.takeOver()
		n.succeed("unmountdevice", n.deviceDir())
	})
}

// TestLostStage: the records were lost while a volume was staged for no pod. A new record said
// nothing of the stage, so that a set-up that failed, and a detach callout, detached under it.
func TestLostStage(t *testing.T) {
	lost := func(t *testing.T) *node {
		n := newNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		n.driver.fail["NodeUnstage"] = []error{final(flex.CodeInternal, "busy")}
		n.succeed("unmount", n.podDir("p1"))
		n.loseRecords()
		n.driver.called()
		return n
	}
	staged := func(n *node) {
		t.Helper()
		if got := n.driver.called(); strings.Contains(got, "ControllerUnpublish") && !strings.Contains(got, "NodeUnstage ControllerUnpublish") {
			t.Errorf("detached under a stage: %s", got)
		}
	}
	t.Run("failed mount", func(t *testing.T) {
		n := lost(t)
		n.driver.fail["ControllerPublish"] = []error{final(flex.CodeInternal, "no")}
		n.call("mount", n.podDir("p2"), options)
		staged(n)
		n.ends()
	})
	t.Run("detach", func(t *testing.T) {
		n := lost(t)
		n.succeed("attach", options, "node-1")
		n.call("detach", "pv1", "node-1")
		staged(n)
		n.bridge.Grace = 1
		n.reconcile()
		n.succeed("detach", "pv1", "node-1")
		n.empty()
	})
	t.Run("unmountdevice", func(t *testing.T) {
		n := lost(t)
		n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
		n.succeed("unmountdevice", n.deviceDir())
		n.answered("unmountdevice", true)
	})
}

// TestLostUnseenTarget: the records were lost after a mount that had failed, with something
// published for the pod. The kubelet had removed the directory, and only directories were looked for:
// the last unmount unstaged the volume under the target.
func TestLostUnseenTarget(t *testing.T) {
	n := newNode(t)
	n.driver.fail["NodePublish"], n.driver.after["NodePublish"] = []error{final(flex.CodeAborted, "test")}, true
	if s := n.call("mount", n.podDir("p2"), options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	n.loseRecords()
	first := n.podDir("p1")
	n.succeed("mount", first, options)
	n.driver.called()
	n.succeed("unmount", first)
	n.expect("something is published for another pod", "NodeUnpublish")
	n.ends()
	if lost := n.bridge.Lost(); len(lost) > 0 {
		t.Errorf("still lost: %v", lost)
	}
}

// TestLostUnseenTargetOfTheCall: the target of the call itself counted as not published, so that
// a set-up that failed unstaged the volume under it.
func TestLostUnseenTargetOfTheCall(t *testing.T) {
	n := newNode(t)
	n.driver.fail["NodePublish"], n.driver.after["NodePublish"] = []error{final(flex.CodeAborted, "test")}, true
	n.call("mount", n.podDir("p1"), options)
	n.loseRecords()
	n.driver.called()
	n.driver.fail["ControllerPublish"] = []error{final(flex.CodeInternal, "no")}
	n.call("mount", n.podDir("p1"), options)
	n.expect("the set-up fails", "ControllerPublish NodeUnpublish NodeUnstage ControllerUnpublish")
	n.empty()
}

// TestSpareTargetIsNoVolume: a daemon that was killed while it gave a target its guard left the
// spare directory, which the next one took for a volume of its own. That stayed lost for good.
func TestSpareTargetIsNoVolume(t *testing.T) {
	for _, lose := range []bool{false, true} {
		n := newNode(t)
		dir := n.podDir("p1")
		n.succeed("mount", dir, options)
		target, err := kubeletdir.TargetPath(dir)
		if err == nil {
			err = os.MkdirAll(kubeletdir.SpareTarget(target), 0o750)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n.start("boot-1"); lose {
			n.loseRecords()
		}
		want := map[bool]string{true: "[{example.com/disk pv1 " + dir + "}]", false: "[]"}[lose]
		if got := fmt.Sprint(n.bridge.Lost()); got != want {
			t.Errorf("records lost: %t: lost are %s, want %s", lose, got, want)
		}
	}
}
