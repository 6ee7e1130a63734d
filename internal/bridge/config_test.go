package bridge_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestPodInfo: who the pod is says the kubelet, and not the volume's options.
func TestPodInfo(t *testing.T) {
	n := newNode(t)
	d := n.bridge.Drivers.All[0]
	d.Policy = fixed(bridge.Policy{PodInfo: true})
	d.Map = func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		v, err := mapOptions(ctx, o)
		v.Context = map[string]string{"share": "a", "csi.storage.k8s.io/pod.namespace": "of-another"}
		v.Pod = csivol.Pod{Name: "p1", Namespace: "own"}
		return v, err
	}
	n.succeed("mount", n.podDir("p1"), options)
	if got := n.driver.context; got["csi.storage.k8s.io/pod.namespace"] != "own" || got["share"] != "a" {
		t.Errorf("NodePublish got the context %v", got)
	}
}

// TestOtherCSIDriver: the configuration has another CSI driver for the same
// FlexVolume driver now, which may know another volume by the same handle.
func TestOtherCSIDriver(t *testing.T) {
	n := newNode(t)
	dir, device := n.podDir("p1"), n.deviceDir()
	if err := os.MkdirAll(device, 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", device, "csi:h1", options)
	n.succeed("mount", dir, options)
	n.start("boot-1")
	d := n.bridge.Drivers.All[0]
	d.CSIDriver, d.Policy = "other.example.com", fixed(bridge.Policy{Republish: true})
	n.bridge.Grace = 1
	n.driver.called()
	for _, args := range [][]string{{"unmount", dir}, {"unmountdevice", device}, {"detach", "pv1", "node-1"}, {"expandfs", options, "", dir, "2000", "1000"}} {
		if s := n.call(args...); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "other.example.com") {
			t.Errorf("%s: %+v", args[0], s)
		}
	}
	n.die()
	n.reconcile()
	if got := n.driver.called(); got != "" {
		t.Errorf("the other driver was called: %s", got)
	}
	d.CSIDriver = "csi.example.com"
	n.succeed("unmount", dir)
	n.succeed("unmountdevice", device)
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestTakenOverWithoutStage: for a driver that stages nothing the kubelet's CSI
// plugin says so in the pods' directories alone.
func TestTakenOverWithoutStage(t *testing.T) {
	n := newNode(t)
	n.driver.features.Stage = false
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.kubeletMounts("p2", "pv1")
	n.driver.called()
	n.succeed("unmount", dir)
	if got, want := n.driver.called(), "NodeUnpublish"; got != want {
		t.Errorf("unmount called %s, want %s", got, want)
	}
}

// stagedElsewhere makes the volume one that a version with the field stagingRoot has staged.
func (n *node) stagedElsewhere() {
	n.rewrite(func(r *volstate.Record) {
		n.mounts.set(r.StagingPath, false)
		r.StagingPath = filepath.Join(n.dir, "plugins/kubernetes.io/csi/other/globalmount")
		n.mounts.set(r.StagingPath, true)
		n.driver.staged[r.Handle] = r.StagingPath
	})
}

// TestStagedElsewhere: the configuration has no staging root any more, and what is staged
// below one is used, and unstaged where the record says.
func TestStagedElsewhere(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.stagedElsewhere()
	n.succeed("mount", n.podDir("p2"), options)
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestTakenOverElsewhere: a volume that is staged at another path than the kubelet's is
// unstaged by the bridge only, and not while the kubelet's CSI plugin uses the volume.
func TestTakenOverElsewhere(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.stagedElsewhere()
	file := n.takeOver()
	n.driver.called()
	if s := n.call("unmount", dir); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "CSI plugin") {
		t.Errorf("unmount: %+v", s)
	}
	if got, want := n.driver.called(), "NodeUnpublish"; got != want {
		t.Errorf("unmount called %s, want %s", got, want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestForgottenElsewhere: a kubelet that was restarted has forgotten its own stage, and
// its file is left. Nothing would ever remove that, and the volume stayed for ever.
func TestForgottenElsewhere(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.stagedElsewhere()
	file := n.takeOver()
	before := time.Now().Add(-2 * bridge.DefaultGrace)
	if err := os.Chtimes(file, before, before); err != nil {
		t.Fatal(err)
	}
	staged := filepath.Join(filepath.Dir(file), "globalmount")
	n.mounts.set(staged, true)
	n.succeedNot("unmount", dir) // it is mounted there, and may not be detached
	n.mounts.set(staged, false)
	n.driver.called()
	n.succeed("unmount", dir)
	n.expect("the end", "NodeUnstage ControllerUnpublish")
	n.empty()
}

// TestWrongKubeletDir: what cannot be looked at could not be undone, and is not
// begun.
func TestWrongKubeletDir(t *testing.T) {
	n := newNode(t)
	for dir, call := range map[string][]string{
		n.podDir("p1"): {"mount", n.podDir("p1"), options},
		n.deviceDir():  {"mountdevice", n.deviceDir(), "csi:h1", options},
	} {
		n.mounts.fail["Mounted "+dir] = errors.New("it is not below /var/lib/other")
		if s := n.call(call...); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "--kubelet-dir") {
			t.Errorf("%s: %+v", call[0], s)
		}
		if got := n.driver.called(); got != "" {
			t.Errorf("%s called %s", call[0], got)
		}
		n.empty()
	}
}

// TestIsAttachedElsewhere: of another node nothing is known.
func TestIsAttachedElsewhere(t *testing.T) {
	n := newNode(t)
	n.succeed("attach", options, "node-1")
	n.succeed("isattached", options, "node-1")
	for _, call := range [][]string{{"isattached", options, "node-2"}, {"detach", "pv1", "node-2"}, {"detach", "pv9", "node-2"}} {
		if s := n.call(call...); s.Status != flex.StatusFailure {
			t.Errorf("%v: %+v", call, s)
		}
	}
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// takeOver is what the kubelet's CSI plugin leaves when it has the volume.
func (n *node) takeOver() (file string) {
	file = filepath.Join(n.dir, "plugins/kubernetes.io/csi/csi.example.com", fmt.Sprintf("%x", sha256.Sum256([]byte("h1"))), "vol_data.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, []byte("{}"), 0o600)); err != nil {
		n.t.Fatal(err)
	}
	return file
}
