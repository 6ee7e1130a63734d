package bridge_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// maps has the configuration say where the volume is.
func (n *node) maps(share string) {
	n.bridge.Drivers.All[0].Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.Context = map[string]string{"share": share}
		return v, err
	}
}

// asked checks what the driver was asked for in all calls that set up.
func (n *node) asked(when string, want ...string) {
	n.t.Helper()
	if got := slices.Compact(n.driver.asked); !slices.Equal(got, want) {
		n.t.Errorf("%s: asked for %q, want %q", when, got, want)
	}
	n.driver.asked = nil
}

// TestChangedConfiguration: with a rolling update the old pod waits for the new one,
// which was refused as long as the old one had the volume as it was mapped before.
func TestChangedConfiguration(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		n := newNode(t)
		n.maps("a")
		n.succeed("mount", n.podDir("p1"), options)
		n.asked("the first pod", "ext4 a")
		if restarted {
			n.start("boot-1")
		}
		var log bytes.Buffer
		n.bridge.Log = slog.New(slog.NewTextHandler(&log, nil))
		n.maps("b")
		n.driver.called()
		n.succeed("mount", n.podDir("p2"), options)
		n.expect("goes on as it was begun", "NodePublish")
		n.asked("the second pod", "ext4 a")
		if !strings.Contains(log.String(), "has changed") {
			t.Errorf("the log does not say that it has changed: %s", log.String())
		}
		n.succeed("unmount", n.podDir("p1"))
		n.succeed("unmount", n.podDir("p2"))
		n.empty()
		n.succeed("mount", n.podDir("p3"), options)
		n.asked("when no pod had it", "ext4 b")
		n.succeed("unmount", n.podDir("p3"))
		n.empty()
	}
}

// TestChangedFSType: what the record says decides on the fsGroup, too.
func TestChangedFSType(t *testing.T) {
	n := newNode(t)
	n.bridge.Drivers.All[0].Policy = fixed(bridge.Policy{FSGroup: storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy})
	group := strings.Replace(options, "{", `{"kubernetes.io/mounterArgs.FsGroup":"1234",`, 1)
	n.succeed("mount", n.podDir("p1"), group)
	n.mounts.fail["SetGroup"] = final(flex.CodeInternal, "asked to set the group")
	if s := n.call("mount", n.podDir("p2"), strings.Replace(group, "ext4", "", 1)); !strings.Contains(s.Message, "asked to set the group") {
		t.Errorf("the volume has a filesystem, whatever is asked now: %+v", s)
	}
}

// TestChangedBeforeAnyPod: what was wrong is put right, and a step that never ends
// is not gone on with for the sake of a record: no pod has the volume.
func TestChangedBeforeAnyPod(t *testing.T) {
	for method, want := range map[string]string{
		"ControllerPublish": "ControllerUnpublish ControllerPublish NodeStage NodePublish",
		"NodeStage":         "NodeUnstage ControllerUnpublish ControllerPublish NodeStage NodePublish",
		"NodePublish":       "NodeUnpublish NodeUnstage ControllerUnpublish ControllerPublish NodeStage NodePublish",
	} {
		for _, other := range []bool{false, true} { // the pod was replaced meanwhile
			n := newNode(t)
			n.maps("wrong")
			n.driver.fail[method] = []error{final(flex.CodeDeadlineExceeded, "no such server")}
			n.driver.after[method] = true
			n.succeedNot("mount", n.podDir("p1"), options)
			n.driver.called()
			n.driver.asked = nil
			n.maps("right")
			pod := "p1"
			if other {
				pod = "p2"
			}
			n.succeed("mount", n.podDir(pod), options)
			n.expect(method, want)
			n.asked(method, "ext4 right")
			n.succeed("unmount", n.podDir(pod))
			n.succeed("unmount", n.podDir("p1"))
			n.empty()
		}
	}
}

// TestChangedWhileTakenOver: what the kubelet's CSI plugin has, too, is not undone.
func TestChangedWhileTakenOver(t *testing.T) {
	n := newNode(t)
	n.maps("a")
	n.driver.fail["NodePublish"] = []error{final(flex.CodeDeadlineExceeded, "late")}
	n.succeedNot("mount", n.podDir("p1"), options)
	n.takeOver()
	n.kubeletMounts("p2", "pv1")
	n.driver.called()
	n.driver.asked = nil
	n.maps("b")
	n.succeed("mount", n.podDir("p1"), options)
	// It was published, perhaps, while the plugin had unstaged the volume.
	n.expect("as it was begun", "NodeUnpublish NodeStage NodePublish")
	n.asked("as it was begun", "ext4 a")
}

// TestChangedInline: what two pods call by one name may be two volumes.
func TestChangedInline(t *testing.T) {
	n := newNode(t)
	inline := func(share string) {
		n.bridge.Drivers.All[0].Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
			v, err := mapOptions(ctx, o)
			v.Context, v.Inline = map[string]string{"share": share}, true
			return v, err
		}
	}
	inline("a")
	n.succeed("mount", n.podDir("p1"), options)
	inline("b")
	if s := n.call("mount", n.podDir("p2"), options); s.Status != flex.StatusFailure || s.Code != flex.CodeAlreadyExists {
		t.Errorf("%+v", s)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}
