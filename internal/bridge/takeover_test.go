package bridge_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// kubeletMounts has the kubelet's CSI plugin mount the volume for a pod: its
// directory with the file, and the mount.
func (n *node) kubeletMounts(pod, persistentVolume string) (dir string) {
	n.t.Helper()
	dir = filepath.Join(n.dir, "pods", pod, "volumes/kubernetes.io~csi", persistentVolume)
	if err := os.MkdirAll(filepath.Join(dir, "mount"), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(`{"driverName":"csi.example.com","volumeHandle":"h1"}`), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.mounts.set(filepath.Join(dir, "mount"), true)
	return dir
}

// TestKubeletHas: a pod has been taken over when the kubelet's CSI plugin has
// mounted the volume for it, and not for another, and not when it only began.
func TestKubeletHas(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("mount", n.podDir("p2"), options)
	r := n.bridge.Records()[0]
	says := func(when string, want map[string]bool) {
		t.Helper()
		for pod, want := range want {
			if got := n.bridge.KubeletHas(r, pod); got != want {
				t.Errorf("%s: the kubelet has it for %q: %t", when, pod, got)
			}
		}
	}
	says("mounted here", map[string]bool{"": false, "p1": false, "p2": false})
	file := n.takeOver()
	says("staged", map[string]bool{"": true, "p1": false, "p2": false})
	if !n.bridge.KubeletTook(r) {
		t.Error("it is staged by the kubelet, too")
	}
	mount := filepath.Join(n.kubeletMounts("p2", "pv1"), "mount")
	says("published", map[string]bool{"": true, "p1": false, "p2": true})
	if err := os.Remove(file); err != nil || !n.bridge.KubeletTook(r) {
		t.Errorf("a driver that does not stage: %v", err)
	}
	n.mounts.set(mount, false)
	says("not published yet", map[string]bool{"": false, "p1": false, "p2": false})
	if n.bridge.KubeletTook(r) {
		t.Error("the kubelet does not have it")
	}
}

// kubeletUnstages has the kubelet's CSI plugin unstage the volume.
func (n *node) kubeletUnstages(file string) {
	n.t.Helper()
	staging := filepath.Join(filepath.Dir(file), "globalmount")
	if err := errors.Join(n.driver.NodeUnstage(n.t.Context(), "h1", staging), os.Remove(file)); err != nil {
		n.t.Fatal(err)
	}
	n.driver.called()
}

// becomes is what the API server says of pv1, and of its pods.
func (n *node) becomes(f csivol.PVState) {
	n.bridge.PVState = func(_ context.Context, name string, key csivol.Key, _ string) (csivol.PVState, error) {
		if name != "pv1" || key != (csivol.Key{Driver: "csi.example.com", Handle: "h1"}) {
			n.t.Errorf("asked what became of %s, %s", name, key)
		}
		return f, nil
	}
}

// expect checks what the driver was called for.
func (n *node) expect(when, want string) {
	n.t.Helper()
	if got := n.driver.called(); got != want {
		n.t.Errorf("%s: called %q, want %q", when, got, want)
	}
}

// later makes the bridge forget how long ago it was that anything happened.
func (n *node) later() {
	n.t.Helper()
	pvState := n.bridge.PVState
	n.rewrite(func(r *volstate.Record) {})
	n.bridge.Grace, n.bridge.PVState = time.Nanosecond, pvState
}

// TestLivingPodKeepsItsVolume: a kubelet that was restarted while the
// PersistentVolume was replaced unmounts what it does not know any more, and the
// pod's containers still have it.
func TestLivingPodKeepsItsVolume(t *testing.T) {
	replaced := csivol.PVState{Replaced: "is gone, or is being replaced", Pod: "shop/web"}
	for _, device := range []bool{false, true} {
		n := newNode(t)
		dir := n.podDir("p1")
		if device {
			n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
		}
		n.succeed("mount", dir, options)
		n.driver.called()
		n.becomes(replaced)
		for range 2 {
			s := n.call("unmount", dir)
			if s.Status != flex.StatusFailure || s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "shop/web") || !strings.Contains(s.Message, "pv1") {
				t.Fatalf("unmount of a pod that lives: %+v", s)
			}
		}
		if device {
			n.succeedNot("unmountdevice", n.deviceDir())
		}
		n.expect("refused", "")
		if !n.mounts.mounted[dir] || !n.record().Targets[dir].Bound {
			t.Error("the mount is gone")
		}
		n.becomes(csivol.PVState{}) // it is a FlexVolume again
		n.succeed("mount", dir, options)
		n.expect("mounted already", "")

		n.becomes(csivol.PVState{Replaced: "is the CSI volume by now"}) // the pod ends
		n.succeed("unmount", dir)
		if device {
			n.succeed("unmountdevice", n.deviceDir())
			n.succeed("detach", "pv1", "node-1")
		}
		n.empty()
	}
}

func (n *node) succeedNot(args ...string) {
	n.t.Helper()
	if s := n.call(args...); s.Status != flex.StatusFailure {
		n.t.Fatalf("%v: %+v", args, s)
	}
}

// TestLivingPodTakenOver: the old mount may go under a pod that lives if its
// filesystem lives on in the new one, and only then.
func TestLivingPodTakenOver(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.becomes(csivol.PVState{Replaced: "is the CSI volume by now", Pod: "shop/web"})
	n.takeOver()
	n.kubeletMounts("p1", "pv1")
	n.driver.called()
	// Migrated, taken back, and half-way of being migrated again: while there is no
	// volume a kubelet that is restarted takes its own mount away as well.
	n.becomes(csivol.PVState{Replaced: "is gone, or is being replaced", Gone: true, Pod: "shop/web"})
	n.succeedNot("unmount", dir)
	n.expect("no PersistentVolume", "")
	n.becomes(csivol.PVState{Replaced: "is the CSI volume by now", Pod: "shop/web"})
	n.mounts.fail["SameFilesystem"] = errors.New("one of them hangs")
	n.succeedNot("unmount", dir)
	n.expect("another filesystem", "")
	delete(n.mounts.fail, "SameFilesystem")
	n.succeed("unmount", dir)
	n.expect("the same filesystem", "NodeUnpublish")
	if len(n.bridge.Records()) > 0 {
		t.Errorf("the record is left: %+v", n.record())
	}
}

// TestPVStateUnknown: an API server that is away does not keep pods from ending.
func TestPVStateUnknown(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.bridge.PVState = func(context.Context, string, csivol.Key, string) (csivol.PVState, error) {
		return csivol.PVState{Replaced: "is gone", Pod: "shop/web"}, errors.New("no answer")
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestLeftUnclear: the kubelet's CSI plugin has staged the volume and has it for no
// pod. It ends it itself, gets a pod for it, or never comes back.
func TestLeftUnclear(t *testing.T) {
	begin := func(t *testing.T) (n *node, file string) {
		n = newNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		file = n.takeOver()
		n.driver.called()
		n.succeed("unmount", n.podDir("p1"))
		n.reconcile()
		n.expect("unclear", "NodeUnpublish")
		if r := n.record(); r.Owner == volstate.Ours || r.Stage != volstate.Done {
			t.Errorf("%+v", r)
		}
		return n, file
	}
	t.Run("it ends it", func(t *testing.T) {
		n, file := begin(t)
		n.kubeletUnstages(file)
		n.reconcile()
		n.expect("unstaged by the kubelet", "ControllerUnpublish")
		n.empty()
	})
	t.Run("a pod has it", func(t *testing.T) {
		n, _ := begin(t)
		n.kubeletMounts("p2", "another-name")
		n.reconcile()
		n.expect("handed over", "")
		if len(n.bridge.Records()) > 0 {
			t.Errorf("the record is left: %+v", n.record())
		}
	})
	t.Run("it never comes back", func(t *testing.T) {
		n, file := begin(t)
		n.later()
		n.reconcile()
		n.expect("after its time", "NodeUnstage ControllerUnpublish")
		n.empty()
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the kubelet's file is left, and would be believed: %v", err)
		}
	})
	t.Run("it is a FlexVolume again", func(t *testing.T) {
		n, file := begin(t)
		n.succeed("mount", n.podDir("p3"), options)
		n.expect("staged as it is, which may not last", "NodeStage NodePublish")
		if n.record().Owner != volstate.Ours {
			t.Error("it is taken over, and a pod has it from here")
		}
		if err := os.Remove(file); err != nil { // its unmount was refused, and it forgot the volume
			t.Fatal(err)
		}
		n.succeed("unmount", n.podDir("p3"))
		n.empty()
	})
}

// TestNextPod: a pod of this node is about to have the volume as a CSI one. It is
// not unstaged under its NodeStageVolume.
func TestNextPod(t *testing.T) {
	for _, comes := range []bool{true, false} {
		n := newNode(t)
		n.succeed("mount", n.podDir("p1"), options)
		n.driver.called()
		n.becomes(csivol.PVState{Replaced: "is the CSI volume by now", Next: "shop/web-2"})
		n.succeed("unmount", n.podDir("p1"))
		n.reconcile()
		n.expect("about to be taken over", "NodeUnpublish")
		if comes {
			n.takeOver()
			n.kubeletMounts("p2", "pv1")
			n.reconcile()
			n.expect("taken over", "")
			if len(n.bridge.Records()) > 0 {
				t.Errorf("the record is left: %+v", n.record())
			}
			continue
		}
		n.later()
		n.reconcile()
		n.expect("it did not come", "NodeUnstage ControllerUnpublish")
		n.empty()
	}
}

// TestUnstagedByTheKubelet: its CSI plugin unstages what it had before, between our
// NodeStageVolume and our NodePublishVolume, or while nothing is published. No pod
// gets a bare directory.
func TestUnstagedByTheKubelet(t *testing.T) {
	n := newNode(t)
	file := n.takeOver()
	n.driver.between = func() {
		n.driver.between = nil
		delete(n.driver.staged, "h1")
		n.mounts.set(filepath.Join(filepath.Dir(file), "globalmount"), false)
		_ = os.Remove(file)
	}
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || s.Code != flex.CodeUnavailable {
		t.Errorf("mount of a bare directory: %+v", s)
	}
	if n.mounts.mounted[dir] {
		t.Fatal("a pod has a bare directory")
	}
	n.driver.called()
	n.succeed("mount", dir, options)
	if got := n.driver.called(); !strings.Contains(got, "NodeStage") {
		t.Errorf("called %s, and it is not staged", got)
	}
	// Unstaged under a pod: the mounts of some drivers do not prevent that.
	delete(n.driver.staged, "h1")
	n.mounts.set(filepath.Join(filepath.Dir(file), "globalmount"), false)
	n.succeed("mount", n.podDir("p2"), options)
	n.expect("a second pod", "NodeStage NodePublish")
	n.succeed("unmount", dir)
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestAttachedAsCSI: the control plane has had the volume attached as a CSI volume since
// before a rollback, and detaches it when the kubelet's CSI plugin releases it. If that
// happens while the volume is published, the pod does not get the volume.
func TestAttachedAsCSI(t *testing.T) {
	n := newClusterNode(t)
	n.cluster.set(func() { n.cluster.asCSI = true })
	file := n.takeOver()
	n.driver.between = func() { _ = os.Remove(file) }
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || s.Code != flex.CodeUnavailable {
		t.Errorf("mount of what is about to be detached: %+v", s)
	}
	if n.mounts.mounted[dir] {
		t.Error("a pod has what is about to be detached")
	}
	if asked := n.cluster.asked; !asked[0].KubeletHolds || asked[len(asked)-1].KubeletHolds {
		t.Errorf("asked for %+v", asked)
	}
	n.cluster.set(func() { n.cluster.asCSI = false })
	n.driver.between = nil
	n.succeed("mount", dir, options)
	n.succeed("unmount", dir)
	n.empty()

	// A kubelet that was restarted has forgotten what is staged, and not what a pod has.
	n.cluster.set(func() { n.cluster.asCSI = true })
	file = n.takeOver()
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || s.Code != flex.CodeUnavailable || n.mounts.mounted[dir] {
		t.Errorf("mount of what the kubelet may have forgotten: %+v", s)
	}
	// As long as its plugin has it for a pod, it is as good as ours.
	csi := n.kubeletMounts("p3", "pv1")
	n.succeed("mount", dir, options)
	n.cluster.called()
	n.succeed("unmount", dir)
	if got := n.cluster.called(); got != "" {
		t.Errorf("called %s for what the control plane has", got)
	}
	// The next pod requests again what was left to the control plane.
	n.succeed("mount", n.podDir("p2"), options)
	if got := n.cluster.called(); got != "Attach" {
		t.Errorf("called %q, and the attachment may be about to go", got)
	}
	n.mounts.set(filepath.Join(csi, "mount"), false)
	if err := errors.Join(os.Remove(file), os.RemoveAll(csi)); err != nil {
		t.Fatal(err)
	}
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

// TestAttachedAsCSIRepeated: a mount that failed may be repeated after the kubelet's CSI
// plugin has released the volume.
func TestAttachedAsCSIRepeated(t *testing.T) {
	n := newClusterNode(t)
	n.cluster.set(func() { n.cluster.asCSI = true })
	file := n.takeOver()
	n.driver.fail["NodeStage"] = []error{final(flex.CodeAborted, "it is being unstaged")}
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
		t.Errorf("mount of what is being unstaged: %+v", s)
	}
	n.cluster.called()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n.cluster.set(func() { n.cluster.asCSI = false })
	n.succeed("mount", dir, options)
	if got := n.cluster.called(); got != "Attach" {
		t.Errorf("called %q, and the attachment may be about to go", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestAttachedAsCSIUncertain: the NodePublishVolume of a mount is uncertain, and another
// operation requests the attachment after it. The record used to forget that the control
// plane may detach the volume. The next mount did not request the attachment, and the
// volume was detached under the pod.
func TestAttachedAsCSIUncertain(t *testing.T) {
	for name, again := range map[string]func(n *clusterNode, dir string){
		"reconcile": func(n *clusterNode, _ string) { n.reconcile() },
		"mount":     func(n *clusterNode, dir string) { n.fail("no answer", "mount", dir, options) },
		"restart": func(n *clusterNode, _ string) {
			n.start("boot-1")
			n.reconcile()
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newClusterNode(t)
			n.cluster.set(func() { n.cluster.asCSI = true })
			file := n.takeOver()
			n.driver.fail["NodePublish"] = []error{final(flex.CodeDeadlineExceeded, "no answer"), final(flex.CodeDeadlineExceeded, "no answer")}
			dir := n.podDir("p1")
			n.fail("no answer", "mount", dir, options)
			again(n, dir)
			n.cluster.called()
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			n.driver.fail["NodePublish"] = nil
			n.cluster.set(func() { n.cluster.asCSI = false })
			n.succeed("mount", dir, options)
			if got := n.cluster.called(); got != "Attach" {
				t.Errorf("called %q, and the attachment may be about to go", got)
			}
			if r := n.record(); r.Attach != volstate.Done {
				t.Errorf("%+v", r)
			}
			n.succeed("unmount", dir)
			n.empty()
		})
	}
}

// TestTakenOverDevice: with attach: true the volume is unstaged by unmountdevice,
// some time after the last unmount. The kubelet's CSI plugin, which could not while
// it was published here, may have been quicker.
func TestTakenOverDevice(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		n := newNode(t)
		dir := n.podDir("p1")
		n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
		n.succeed("mount", dir, options)
		file := n.takeOver()
		csi := n.kubeletMounts("p1", "pv1")
		n.driver.called()
		n.succeed("unmount", dir)
		n.expect("unmount", "NodeUnpublish")
		if err := os.RemoveAll(csi); err != nil {
			t.Fatal(err)
		}
		n.mounts.set(filepath.Join(csi, "mount"), false)
		n.kubeletUnstages(file)
		if restarted {
			n.start("boot-1")
		}
		n.succeed("unmountdevice", n.deviceDir())
		n.expect("unmountdevice", "")
		n.succeed("detach", "pv1", "node-1")
		n.empty()
	}
}

// TestKilledWhileTakenOver: the process ends with any write of an unmount of what
// the kubelet's CSI plugin has, too, which ends it meanwhile; what is called again
// ends nothing twice, and nothing is left.
func TestKilledWhileTakenOver(t *testing.T) {
	for stop := 1; ; stop++ {
		n := newNode(t)
		dir := n.podDir("p1")
		n.succeed("mount", dir, options)
		file := n.takeOver()
		csi := n.kubeletMounts("p1", "pv1")
		n.driver.called()
		recorder := &recording{RecordStore: n.store, stop: stop}
		n.bridge.State = recorder
		first := n.call("unmount", dir)
		if first.Status == flex.StatusSuccess {
			if stop < 2 {
				t.Fatal("nothing was written")
			}
			break
		}
		called := n.driver.called()
		if stop > 1 { // our mounts are gone: so may be its
			if err := os.RemoveAll(csi); err != nil {
				t.Fatal(err)
			}
			n.mounts.set(filepath.Join(csi, "mount"), false)
			n.kubeletUnstages(file)
		}
		n.start("boot-1")
		n.succeed("unmount", dir)
		called += " " + n.driver.called()
		if strings.Contains(called, "NodeUnstage") {
			t.Errorf("killed at write %d: called %s", stop, called)
		}
		if records, _, _ := n.store.Load(); len(records) > 0 {
			t.Errorf("killed at write %d: the record is left: %+v", stop, records[0])
		}
	}
}
