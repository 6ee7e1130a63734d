package cluster

import (
	"maps"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// testRequests counts what the daemon asks the API server for. What becomes of
// an attachment comes by the watch that it has from the start. How long an
// attach takes is measured by BenchmarkAttach.
func testRequests(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{object: &storagev1.CSIDriverSpec{}})
	n, first, v := w.nodes[0], w.volume("first"), w.volume("disk")
	n.mount(first, "pod")        // with it everything is known that is asked for once
	time.Sleep(16 * time.Second) // until the watch of other components' attachments is trusted
	n.api.Requests()
	for _, step := range []struct {
		what string
		do   func()
		want map[string]int
	}{
		{"the first mount", func() { n.mount(v, "pod-a") }, map[string]int{
			"get persistentvolumes": 1, "list volumeattachments": 2, "create volumeattachments": 1,
		}},
		{"the same once more", func() { n.mount(v, "pod-a") }, nil},
		{"a second pod", func() { n.mount(v, "pod-b") }, nil},
		{"its unmount", func() { n.unmount(v, "pod-b") }, map[string]int{"get persistentvolumes": 1}}, // whether it was migrated
		{"the last unmount", func() { n.unmount(v, "pod-a") }, map[string]int{
			"get nodes": 1, "get persistentvolumes": 2, "delete volumeattachments": 1, "get volumeattachments": 1,
		}},
		{"an unmount of what is gone", func() { n.unmount(v, "pod-a") }, nil},
	} {
		start := time.Now()
		step.do()
		if got := withoutLooks(n.api.Requests(), step.want, time.Since(start)); !maps.Equal(got, step.want) {
			t.Errorf("%s asked for %v, want %v", step.what, got, step.want)
		}
	}
	n.unmount(first, "pod")
	n.wantNothing()
}

// withoutLooks takes away the requests that a slow machine may cost: an
// attachment that the watch has not shown for three seconds is asked for
// (internal/kube, firstLook).
func withoutLooks(got, want map[string]int, took time.Duration) map[string]int {
	const look = "get volumeattachments"
	if extra := got[look] - want[look]; extra > 0 && extra <= int(took/(3*time.Second)) {
		got[look] = want[look]
	}
	maps.DeleteFunc(got, func(_ string, times int) bool { return times == 0 })
	return got
}
