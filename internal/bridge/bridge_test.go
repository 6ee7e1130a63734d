package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

func TestMountAndUnmount(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	if got, want := n.driver.called(), "ControllerPublish NodeStage NodePublish"; got != want {
		t.Errorf("mount called %s, want %s", got, want)
	}
	if !n.mounts.mounted[dir] {
		t.Error("the kubelet's directory is not mounted")
	}
	n.succeed("mount", dir, options)
	if got := n.driver.called(); got != "" {
		t.Errorf("a second mount called %s, want nothing: the record says that it is done", got)
	}
	n.succeed("unmount", dir)
	if got, want := n.driver.called(), "NodeUnpublish NodeUnstage ControllerUnpublish"; got != want {
		t.Errorf("unmount called %s, want %s", got, want)
	}
	n.succeed("unmount", dir)
	n.empty()
	if _, err := os.Stat(filepath.Join(n.dir, "pods/p1/flex2csi")); !os.IsNotExist(err) {
		t.Errorf("pods/p1/flex2csi is left: %v", err)
	}
}

func TestTwoPodsShareAStage(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	for _, pod := range []string{"p1", "p2", "p3"} {
		wg.Go(func() { n.succeed("mount", n.podDir(pod), options) })
	}
	wg.Wait()
	if got := strings.Count(n.driver.called(), "NodeStage"); got != 1 {
		t.Errorf("staged %d times, want once", got)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmount", n.podDir("p3"))
	if got := n.driver.called(); strings.Contains(got, "NodeUnstage") {
		t.Errorf("unstaged while a pod has it: %s", got)
	}
	n.succeed("unmount", n.podDir("p2"))
	n.empty()
}

func TestControlPlaneAttaches(t *testing.T) {
	n := newNode(t)
	dir, device := n.podDir("p1"), n.deviceDir()
	if err := os.MkdirAll(device, 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("attach", options, "node-1")
	n.succeed("waitforattach", "csi:h1", options)
	n.succeed("mountdevice", device, "csi:h1", options)
	n.succeed("mount", dir, options)
	if s := n.call("unmountdevice", device); s.Status != flex.StatusFailure {
		t.Errorf("unmountdevice with a pod on the volume: %+v", s)
	}
	if s := n.call("detach", "pv1", "node-1"); s.Status != flex.StatusFailure {
		t.Errorf("detach of a volume that is staged: %+v", s)
	}
	n.succeed("unmount", dir)
	n.succeed("unmountdevice", device)
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestUnmountDeviceAfterAnUncertainMount: the kubelet knows of no pod that has
// the volume, so unmount will not come.
func TestUnmountDeviceAfterAnUncertainMount(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(n.deviceDir(), 0o750); err != nil {
		t.Fatal(err)
	}
	n.succeed("attach", options, "node-1")
	n.succeed("mountdevice", n.deviceDir(), "csi:h1", options)
	n.driver.fail["NodePublish"] = []error{final(flex.CodeDeadlineExceeded, "late")}
	n.driver.after["NodePublish"] = true
	if s := n.call("mount", n.podDir("p1"), options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	n.succeed("unmountdevice", n.deviceDir())
	n.succeed("detach", "pv1", "node-1")
	n.empty()
}

// TestFailureIsUndone: the kubelet calls neither unmount nor unmountdevice for
// a set-up that failed.
func TestFailureIsUndone(t *testing.T) {
	for _, method := range []string{"ControllerPublish", "NodeStage", "NodePublish"} {
		for _, after := range []bool{false, true} {
			n := newNode(t)
			n.driver.fail[method] = []error{final(flex.CodeInternal, "no")}
			n.driver.after[method] = after
			dir := n.podDir("p1")
			if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "no") {
				t.Fatalf("%s fails, and mount answers %+v", method, s)
			}
			n.empty()
			n.succeed("mount", dir, options)
			n.succeed("unmount", dir)
			n.empty()
		}
	}
}

// TestAttachedElsewhere: what has not begun is not undone. Not all drivers look
// at the node before they detach.
func TestAttachedElsewhere(t *testing.T) {
	for _, uncertain := range []bool{false, true} {
		n := newNode(t)
		elsewhere := final(flex.CodeFailedPrecondition, "it is attached to node-2")
		n.driver.fail["ControllerPublish"] = []error{elsewhere}
		want := "ControllerPublish"
		if uncertain {
			n.driver.fail["ControllerPublish"] = []error{final(flex.CodeUnavailable, "gone"), elsewhere}
			n.call("mount", n.podDir("p1"), options)
			want = "ControllerPublish ControllerPublish ControllerUnpublish"
		}
		s := n.call("mount", n.podDir("p1"), options)
		if s.Status != flex.StatusFailure || s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "node-2") {
			t.Errorf("%+v", s)
		}
		if got := n.driver.called(); got != want {
			t.Errorf("called %s, want %s", got, want)
		}
		n.empty()
	}
}

// TestPublishedElsewhere: the driver's mounts do not reach the node.
func TestPublishedElsewhere(t *testing.T) {
	n := newNode(t)
	n.driver.unseen = true
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "Bidirectional") {
		t.Errorf("mount: %+v", s)
	}
	n.empty()
}

// TestUncertainIsRepeated: a driver that may still be at it is asked the same
// again, and what it may have done is never forgotten.
func TestUncertainIsRepeated(t *testing.T) {
	for _, method := range []string{"ControllerPublish", "NodeStage", "NodePublish", "NodeUnpublish", "NodeUnstage", "ControllerUnpublish"} {
		for _, after := range []bool{false, true} {
			n := newNode(t)
			n.driver.fail[method] = []error{final(flex.CodeDeadlineExceeded, "late"), final(flex.CodeUnavailable, "gone")}
			n.driver.after[method] = after
			dir := n.podDir("p1")
			for tries := 0; n.call("mount", dir, options).Status != flex.StatusSuccess; tries++ {
				if n.mounts.mounted[dir] {
					t.Fatalf("%s: a mount that failed is visible", method)
				}
				if tries > 3 {
					t.Fatalf("%s: mount never succeeds", method)
				}
			}
			for tries := 0; n.call("unmount", dir).Status != flex.StatusSuccess; tries++ {
				if tries > 3 {
					t.Fatalf("%s: unmount never succeeds", method)
				}
			}
			n.reconcile() // unmount does not wait for the end of the volume
			n.empty()
		}
	}
}

// TestUnmountOfAnUncertainMount: the pod goes while the driver has not
// answered.
func TestUnmountOfAnUncertainMount(t *testing.T) {
	n := newNode(t)
	n.driver.fail["NodeStage"] = []error{final(flex.CodeDeadlineExceeded, "late")}
	n.driver.after["NodeStage"] = true
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	n.succeed("unmount", dir)
	n.empty()
}

func TestBindFails(t *testing.T) {
	n := newNode(t)
	n.mounts.fail["Bind"] = errors.New("no space for a mount")
	dir := n.podDir("p1")
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure {
		t.Fatalf("mount: %+v", s)
	}
	n.empty()
}

// TestRepeatedCallJoins: a second call while the first is under way waits for
// the same RPC; so does one after the first caller has given up.
func TestRepeatedCallJoins(t *testing.T) {
	n := newNode(t)
	n.driver.hold = make(chan struct{})
	dir := n.podDir("p1")
	d, err := n.bridge.Callouts(flexDriver)
	if err != nil {
		t.Fatal(err)
	}
	d.Timeout = func(flex.Command) time.Duration { return 20 * time.Millisecond }
	if s := flex.Run(t.Context(), d, []string{"mount", dir, options}); !strings.Contains(s.Message, "still in progress") {
		t.Fatalf("a mount that takes longer than its caller waits: %+v", s)
	}
	// With a dead server the answer named neither the RPC nor the CSI driver.
	for status := n.bridge.Status(); len(status) == 0 || status[0].Operations[0].Step != "NodeStageVolume"; status = n.bridge.Status() {
		time.Sleep(time.Millisecond)
	}
	late := flex.Run(t.Context(), d, []string{"mount", dir, options})
	for _, want := range []string{"still in progress", "NodeStageVolume of volume h1 has not ended", "CSI driver csi.example.com"} {
		if !strings.Contains(late.Message, want) {
			t.Errorf("while NodeStageVolume takes long: %+v; want %q", late, want)
		}
	}
	done := make(chan flex.DriverStatus)
	for range 2 {
		go func() {
			answer := n.call("mount", dir, options)
			if answer.Code == flex.CodeAborted { // it came in the moment when the first ended unseen
				answer = n.call("mount", dir, options)
			}
			done <- answer
		}()
	}
	close(n.driver.hold)
	for range 2 {
		if s := <-done; s.Status != flex.StatusSuccess {
			t.Fatalf("%+v", s)
		}
	}
	if got := strings.Count(n.driver.called(), "NodeStage"); got != 1 {
		t.Errorf("staged %d times, want once", got)
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestTakenOver: once the kubelet's own CSI plugin has the volume for a pod, which
// its vol_data.json shows, it is the kubelet's to unstage and detach (a
// PersistentVolume that was migrated under a running pod).
func TestTakenOver(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.takeOver()
	n.kubeletMounts("p1", "pv1")
	n.driver.called()
	n.succeed("unmount", dir)
	if got, want := n.driver.called(), "NodeUnpublish"; got != want {
		t.Errorf("unmount called %s, want %s", got, want)
	}
	if records, _, _ := n.store.Load(); len(records) > 0 {
		t.Errorf("the record is left: %+v", records[0])
	}
}

// TestOtherOptionsForOneHandle: a volume is staged once, so its users must
// want the same of it.
func TestOtherOptionsForOneHandle(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	s := n.call("mount", n.dirOf("p2", "pv2"), strings.Replace(as("pv2"), "ext4", "xfs", 1))
	if s.Status != flex.StatusFailure || s.Code != flex.CodeAlreadyExists || !strings.Contains(s.Message, `fsType "ext4"`) {
		t.Errorf("another fsType: %+v", s)
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestPodIsGone: what the kubelet makes for a pod is not made here.
func TestPodIsGone(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	if err := os.RemoveAll(filepath.Join(n.dir, "pods/p1")); err != nil {
		t.Fatal(err)
	}
	if s := n.call("mount", dir, options); s.Status != flex.StatusFailure || s.Code != flex.CodeNotFound {
		t.Errorf("mount for a pod that is gone: %+v", s)
	}
	if _, err := os.Stat(filepath.Join(n.dir, "pods/p1")); !os.IsNotExist(err) {
		t.Error("the pod's directory was made")
	}
	n.empty()
}
