package contract

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
)

// rpcFaults are the ways in which an RPC fails: with a final answer or without.
func rpcFaults() map[string]string {
	return map[string]string{
		"refused":         `"code": "INTERNAL"`,
		"done and denied": `"code": "INTERNAL", "after": true`,
		"busy":            `"code": "ABORTED"`,
		"done and lost":   `"code": "UNAVAILABLE", "after": true`,
	}
}

// once is a rule for the next call of a method.
func once(method, fault string) string {
	return fmt.Sprintf(`{"method": %q, "times": 1, %s}`, method, fault)
}

// forRPCFaults runs f for each fault of each method, in both modes.
func forRPCFaults(t *testing.T, methods []string, f func(t *testing.T, n *node, v *vol, attach bool, method, fault string)) {
	faults := rpcFaults()
	for _, attach := range bothModes() {
		for _, method := range methods {
			for _, name := range slices.Sorted(maps.Keys(faults)) {
				t.Run(fmt.Sprintf("attach=%t/%s/%s", attach, method, name), func(t *testing.T) {
					k := csiExt4()
					n := k.newNode(t, attach)
					f(t, n, n.newVolume(k, "pv-1"), attach, method, faults[name])
				})
			}
		}
	}
}

// TestSetUpThatFailsInTheCSIDriver: the kubelet forgets a set-up that failed,
// so what the driver has of it is undone at once, or, as long as it is uncertain, by the
// next call. The next try succeeds.
func TestSetUpThatFailsInTheCSIDriver(t *testing.T) {
	forRPCFaults(t, []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"}, testRPCOfSetUp)
}

func testRPCOfSetUp(t *testing.T, n *node, v *vol, attach bool, method, fault string) {
	pod := newPod("a")
	n.faults(once(method, fault))
	var err error
	if attach && method == "ControllerPublishVolume" {
		_, err = n.attacher().Attach(v.spec, nodeName)
	} else {
		n.attach(v)
		err = n.mount(v, pod)
	}
	if err == nil {
		t.Fatal("the driver failed without an error")
	}
	if text := err.Error(); !strings.Contains(text, method) || !strings.Contains(text, "injected fault") || strings.Contains(text, "\n") {
		t.Errorf("the event of the pod reads badly: %q", text)
	}
	if !attach && strings.Contains(fault, "INTERNAL") {
		checkFailedSetup(n, v, pod)
	}
	if method == "ControllerPublishVolume" {
		n.attach(v)
	}
	n.must(n.mount(v, pod))
	v.checkMounted(v.dir(pod))
	n.writeFile(v.dir(pod)+"/file", "x")
	n.takeDown(v, pod)
}

// TestTearDownThatFailsInTheCSIDriver is remembered as uncertain and repeated,
// and then goes on where it ended.
func TestTearDownThatFailsInTheCSIDriver(t *testing.T) {
	forRPCFaults(t, []string{"NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"}, testRPCOfTearDown)
}

func testRPCOfTearDown(t *testing.T, n *node, v *vol, attach bool, method, fault string) {
	pod := newPod("a")
	n.attach(v)
	n.must(n.mount(v, pod))
	n.faults(once(method, fault))
	failed := 0
	again := func(step func() error) {
		t.Helper()
		if err := step(); err != nil {
			failed++
			if !strings.Contains(err.Error(), method) {
				t.Errorf("the event reads badly: %q", err)
			}
			n.must(step())
		}
	}
	again(func() error {
		err := n.unmount(v, pod)
		if err != nil {
			n.checkVolumeState(v, pod, operationexecutor.VolumeMountUncertain)
		}
		return err
	})
	if attach {
		again(func() error { return n.unmountDevice(v) })
		again(func() error { return n.detacher().Detach(v.spec.Name(), nodeName) })
	}
	want := 1
	if !attach && method != "NodeUnpublishVolume" { // the pod goes, and the next one may come before the reconciler
		want = 0
		next := newPod("b")
		n.must(n.mount(v, next))
		n.must(n.unmount(v, next))
	}
	if failed != want {
		t.Errorf("%d steps failed, want %d", failed, want)
	}
	v.checkNothingLeft()
}

// TestDeviceIsInUseAsLongAsAPodHasIt: the kubelet's own check does not see
// through the marker, and the controller manager may detach by force.
func TestDeviceIsInUseAsLongAsAPodHasIt(t *testing.T) {
	k := csiExt4()
	n := k.newNode(t, true)
	v, a, b := n.newVolume(k, "pv-1"), newPod("a"), newPod("b")
	n.attach(v)
	n.must(n.mount(v, a))
	n.must(n.mount(v, b))
	n.must(n.unmount(v, a))
	if err := n.unmountDevice(v); err == nil || len(n.runner.made("unmountdevice")) == 0 {
		t.Errorf("unmountdevice under a pod: %v, calls %q", err, n.runner.sequence())
	}
	if err := n.detacher().Detach("pv-1", nodeName); err == nil {
		t.Error("detached under a pod")
	}
	// That driver refuses as well; others do not.
	if n.csiCalled("NodeUnstageVolume")+n.csiCalled("ControllerUnpublishVolume") > 0 {
		t.Error("the CSI driver was asked")
	}
	v.checkMounted(v.dir(b))
	n.writeFile(v.dir(b)+"/file", "x")
	n.takeDown(v, b)
	if _, err := n.attacher().Attach(v.spec, "node-2"); err == nil || !strings.Contains(err.Error(), "node-2") {
		t.Errorf("attach to a node with an unknown name in the driver: %v", err)
	}
}

// TestPodDeletedWhileTheCSIDriverIsAtWork: unmount waits for the mount that is
// under way, and nothing is left of either.
func TestPodDeletedWhileTheCSIDriverIsAtWork(t *testing.T) {
	for _, method := range []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"} {
		t.Run(method, func(t *testing.T) {
			kind := csiExt4()
			n := kind.newNode(t, false)
			k := n.startKubelet()
			v, pod := n.newVolume(kind, "pv-1"), newPod("a")
			n.faults(once(method, `"delay": "500ms"`))
			k.add(pod, v)
			eventually(t, "the driver is called", func() bool { return n.csiBegan(method) })
			k.remove(pod, v)
			eventually(t, "unmounted", func() bool { return len(n.runner.made("unmount")) > 0 && k.gone(pod, v) })
			v.checkNothingLeft()
		})
	}
}

// TestCallerKilledWhileTheCSIDriverIsAtWork: the RPC is the daemon's. The next
// call joins it, and the one after that finds it done.
func TestCallerKilledWhileTheCSIDriverIsAtWork(t *testing.T) {
	k := csiExt4()
	n := k.newNode(t, false)
	v, pod := n.newVolume(k, "pv-1"), newPod("a")
	n.faults(once("NodePublishVolume", `"delay": "1s"`))
	// The wrapper exempts the call from the rules: a killed driver says nothing.
	n.runner.wrapped("mount", func(argv []string) []string { return argv }, func() {
		done := make(chan error)
		go func() { done <- n.mount(v, pod) }()
		eventually(t, "the driver is called", func() bool { return n.csiBegan("NodePublishVolume") })
		for _, pid := range n.drivers() {
			n.must(unix.Kill(pid, unix.SIGKILL))
		}
		if err := <-done; err == nil {
			t.Error("a driver that was killed is no error to the kubelet")
		}
	})
	n.must(n.mount(v, pod))
	v.checkMounted(v.dir(pod))
	if a := n.executeOne(n.runner.last(t, "mount").args...); a.Status != "Success" {
		t.Errorf("mount once more: %+v", a)
	}
	for _, method := range []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"} {
		if times := n.csiCalled(method); times != 1 {
			t.Errorf("%s was called %d times", method, times)
		}
	}
	n.takeDown(v, pod)
}
