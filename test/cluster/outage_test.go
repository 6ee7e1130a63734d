package cluster

import (
	"strings"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// testOutage: with the API server away, what is attached can be mounted and
// everything unmounted, also by a daemon that was started meanwhile; what is
// left over is done when it is back.
func testOutage(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, used, last, fresh := w.nodes[0], w.volume("used"), w.volume("last"), w.volume("fresh")
	n.mount(used, "pod-a")
	n.mount(last, "pod-a")
	n.api.Away()
	for _, restart := range []bool{false, true} {
		if restart {
			w.must(n.daemon.Restart())
		}
		n.mount(used, "pod-b")
		n.timeout = short
		n.mustFail(n.tryMount(fresh, "pod-b"), "API server")
		n.timeout = patience
		n.unmount(last, "pod-a")
	}
	n.unmount(fresh, "pod-b")
	n.unmount(used, "pod-a")
	if o := n.attachment(last); o == nil || !o.Status.Attached {
		t.Errorf("during the outage: %+v", o)
	}
	n.api.Back()
	w.eventually(func() bool { return n.attachment(last) == nil }, func() { t.Errorf("after the outage: %+v", n.attachment(last)) })
	n.unmount(used, "pod-b")
	n.wantNothing()
	w.wantBalance()
	w.wantAttached(used.handle, 1)
	w.wantAttached(last.handle, 1)
}

// testNoAttach: a driver that wants no attachment does not need the API server,
// not even when the daemon is started without it.
func testNoAttach(t *testing.T, c *cluster) {
	no := false
	w := newWorld(t, c, options{object: &storagev1.CSIDriverSpec{AttachRequired: &no}, noAttach: true})
	n, v := w.nodes[0], w.volume("disk")
	n.mount(v, "pod-a")
	n.api.Away()
	w.must(n.daemon.Restart())
	n.mount(v, "pod-b")
	n.unmount(v, "pod-a")
	n.unmount(v, "pod-b")
	n.mount(v, "pod-c")
	n.unmount(v, "pod-c")
	n.api.Back()
	n.wantNothing()
	w.wantAttached(v.handle, 0)
}

// testAnswers: each wrong answer of the API server costs time and nothing else.
func testAnswers(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n := w.nodes[0]
	for name, faults := range map[string][]controlplane.Fault{
		"conflict":    {{Verb: "create", Code: 409, Times: 2}, {Verb: "delete", Code: 409, Times: 2}},
		"busy":        {{Code: 429, Times: 5}},
		"error":       {{Code: 500, Times: 5}},
		"unavailable": {{Resource: "volumeattachments", Code: 503, Times: 5}},
		"broken":      {{Times: 5}},
		"lost create": {{Verb: "create", After: true, Times: 1}},
		"lost delete": {{Verb: "delete", After: true, Times: 1}},
		"500 create":  {{Verb: "create", Code: 500, After: true, Times: 1}},
		"500 delete":  {{Verb: "delete", Code: 500, After: true, Times: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			v := w.volume(strings.ReplaceAll(name, " ", "-"))
			n.api.Fail(faults...)
			n.retryMount(v, "pod-a")
			n.unmount(v, "pod-a")
			n.api.Heal()
			n.wantNothing()
			w.wantAttached(v.handle, 1)
		})
	}
}

// testWatches: what happens while a watch is broken or has expired is seen.
func testWatches(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n := w.nodes[0]
	for name, disturb := range map[string]func(){
		"cut": n.api.CutWatches,
		"expired": func() {
			n.api.Fail(controlplane.Fault{Verb: "watch", Code: 410, Times: 3})
			n.api.CutWatches()
		},
		"slow": func() { n.api.Slow(time.Second) },
		"restart": func() {
			w.must(w.APIServer.Restart())
		},
		"etcd": func() {
			w.must(w.ETCD.Restart())
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := w.volume(name)
			w.fail(fault.Rule{Method: "Controller*", Volume: v.handle, Delay: fault.Duration(2 * time.Second)})
			n.during(func() { n.retryMount(v, "pod-a") }, disturb)
			n.during(func() { n.unmount(v, "pod-a") }, disturb)
			n.api.Heal()
			n.wantNothing()
			w.wantAttached(v.handle, 1)
		})
	}
}

// during does something and disturbs it after half a second.
func (n *node) during(work, disturb func()) {
	var disturbed sync.WaitGroup
	disturbed.Go(func() {
		time.Sleep(500 * time.Millisecond)
		disturb()
	})
	work()
	disturbed.Wait()
}
