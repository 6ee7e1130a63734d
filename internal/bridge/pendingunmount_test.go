package bridge_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

var _ bridge.PendingUnmounts = memoryUnmounts{}

// memoryUnmounts are pending unmounts in memory.
type memoryUnmounts map[string]bool

func (g memoryUnmounts) Has(dir string) (bool, error) { return g[dir], nil }
func (g memoryUnmounts) Remove(dir string) error      { delete(g, dir); return nil }
func (g memoryUnmounts) Dirs() []string               { return slices.Sorted(maps.Keys(g)) }

func TestCompleteUnmount(t *testing.T) {
	n := newNode(t)
	g := memoryUnmounts{}
	n.bridge.PendingUnmounts = g
	dir := n.podDir("p1")

	// The daemon was away when the pod went.
	n.succeed("mount", dir, options)
	n.mounts.set(dir, false)
	g[dir] = true
	if err := n.bridge.CompleteUnmount(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	n.empty()

	// It is back, and the same directory is mounted before it has looked.
	n.succeed("mount", dir, options)
	n.mounts.set(dir, false)
	g[dir] = true
	n.succeed("mount", dir, options)
	if err := n.bridge.CompleteUnmount(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if !n.mounts.mounted[dir] {
		t.Error("the pending unmount of an older mount took the new one away")
	}

	// A pending unmount does not outlive an unmount.
	g[dir] = true
	n.succeed("unmount", dir)
	n.empty()
	g[dir] = true
	n.succeed("unmount", dir)
	if len(g) > 0 {
		t.Errorf("pending unmounts are left: %v", g)
	}
}

// TestCompleteUnmountOfWhatIsMounted: flexdriver was killed before it unmounted anything. The
// kubelet, which has no answer, calls unmount again, or has the pod use what is mounted.
func TestCompleteUnmountOfWhatIsMounted(t *testing.T) {
	n := newNode(t)
	g := memoryUnmounts{}
	n.bridge.PendingUnmounts = g
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	g[dir] = true
	if err := n.bridge.CompleteUnmount(t.Context(), dir); err != nil || !n.mounts.mounted[dir] {
		t.Errorf("what is mounted, and may be in use, was unmounted: %v", err)
	}
	n.succeed("unmount", dir)
	n.empty()

	lost := n.podDir("p2") // no record knows of it
	n.mounts.set(lost, true)
	g[lost] = true
	if err := n.bridge.CompleteUnmount(t.Context(), lost); err != nil || !n.mounts.mounted[lost] {
		t.Errorf("what is mounted, and may be in use, was unmounted: %v", err)
	}
	n.succeed("unmount", lost)
	if len(g) > 0 {
		t.Errorf("pending unmounts are left: %v", g)
	}
}

// TestUnmountFindsWhatHasNoRecordYet: the pod goes while its mount waits.
func TestUnmountFindsWhatHasNoRecordYet(t *testing.T) {
	n := newNode(t)
	n.driver.hold = make(chan struct{})
	go n.call("mount", n.podDir("p1"), options)
	for !n.bridge.Busy() {
		time.Sleep(time.Millisecond)
	}
	go n.call("mount", n.podDir("p2"), options)
	for len(n.bridge.Operations()) < 2 {
		time.Sleep(time.Millisecond)
	}
	done := make(chan flex.DriverStatus)
	go func() { done <- n.call("unmount", n.podDir("p2")) }()
	for len(n.bridge.Operations()) < 3 {
		time.Sleep(time.Millisecond)
	}
	close(n.driver.hold)
	if s := <-done; s.Status != flex.StatusSuccess {
		t.Fatal(s.Message)
	}
	if n.mounts.mounted[n.podDir("p2")] {
		t.Error("unmount answered, and then the volume was mounted")
	}
	n.succeed("unmount", n.podDir("p1"))
	n.empty()
}

// TestMountAfterUnmountIsNotTheOneBefore: a pod with the same UID (a static
// one) is back while the unmount of its volume waits for the mount before it.
func TestMountAfterUnmountIsNotTheOneBefore(t *testing.T) {
	n := newNode(t)
	n.driver.hold = make(chan struct{})
	dir := n.podDir("p1")
	answers := make(chan flex.DriverStatus)
	for i, args := range [][]string{{"mount", dir, options}, {"unmount", dir}, {"mount", dir, options}} {
		go func() { answers <- n.call(args...) }()
		for len(n.bridge.Operations()) <= i {
			time.Sleep(time.Millisecond)
		}
	}
	close(n.driver.hold)
	for range 3 {
		if s := <-answers; s.Status != flex.StatusSuccess {
			t.Error(s.Message)
		}
	}
	if !n.mounts.mounted[dir] {
		t.Error("the last mount succeeded, and nothing is mounted")
	}
	n.succeed("unmount", dir)
	n.empty()
}

// TestCompleteUnmountDoesNotQueue behind a driver that hangs: it is called repeatedly.
func TestCompleteUnmountDoesNotQueue(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.bridge.PendingUnmounts = memoryUnmounts{}
	n.driver.hold = make(chan struct{})
	done := make(chan flex.DriverStatus)
	go func() { done <- n.call("mount", dir, options) }()
	for !n.bridge.Busy() {
		time.Sleep(time.Millisecond)
	}
	if err := n.bridge.CompleteUnmount(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if ops := n.bridge.Operations(); len(ops) != 1 {
		t.Errorf("under way: %v", ops)
	}
	close(n.driver.hold)
	if s := <-done; s.Status != flex.StatusSuccess {
		t.Error(s.Message)
	}
	n.succeed("unmount", dir)
	n.empty()
}
