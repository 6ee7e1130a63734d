package cluster

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// many attachments at once.
const many = 500

// testMany: a node that gets all its pods at once, and loses them.
func testMany(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n := w.nodes[0]
	n.timeout = 10 * time.Minute
	volumes := make([]*volume, many)
	eachOf(many, func(i int) { volumes[i] = w.volume(strconv.Itoa(i)) })
	n.api.Requests()
	start := time.Now()
	var again atomic.Int64
	w.all(volumes, func(v *volume) bool {
		// The API server may have so many at once wait for longer than a request
		// may last. Then the kubelet calls again, and finds what was begun.
		for range 3 {
			if success(n.tryMount(v, "pod")) {
				return true
			}
			again.Add(1)
		}
		return false
	})
	t.Logf("%d volumes attached and mounted in %v, %d calls made again: requests %v", many, time.Since(start), again.Load(), n.api.Requests())
	attached := 0
	for _, o := range w.attachments() {
		if o.Status.Attached {
			attached++
		}
	}
	if attached != many {
		t.Errorf("%d of %d attached", attached, many)
	}
	start = time.Now()
	w.all(volumes, func(v *volume) bool { return success(n.call("unmount", n.podDir(v, "pod"))) })
	n.wantNothing()
	t.Logf("unmounted and detached in %v: requests %v", time.Since(start), n.api.Requests())
	w.wantBalance()
}

// all does something with all volumes at once.
func (w *world) all(volumes []*volume, do func(*volume) bool) {
	w.t.Helper()
	var failed atomic.Int64
	var work sync.WaitGroup
	for _, v := range volumes {
		work.Go(func() {
			if !do(v) {
				failed.Add(1)
			}
		})
	}
	work.Wait()
	if failed.Load() > 0 {
		w.t.Errorf("%d of %d failed", failed.Load(), len(volumes))
	}
}

// eachOf does something n times, a few at a time.
func eachOf(n int, do func(int)) {
	var work sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		work.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	work.Wait()
}
