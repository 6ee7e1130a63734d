package kube_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testAway has the API server away in each step.
func testAway(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("away", "node-1")
	d.proxy.Away()
	_, err := d.Attach(within(t, 5*time.Second), a)
	says(t, err, flex.CodeUnavailable, "pv-away", "a retry may succeed")
	if !errors.Is(err, csivol.ErrNotBegun) {
		t.Errorf("nothing was asked for: %v", err)
	}
	d.proxy.Back()

	// The API server comes back during the wait.
	done := attaching(t, d, a)
	x.wait(name(a), there)
	d.proxy.Away()
	x.attach(name(a))
	time.Sleep(300 * time.Millisecond)
	d.proxy.Back()
	got := <-done
	if flex.CodeOf(got.err) == flex.CodeUnavailable { // the answer to create was cut off, and the kubelet calls again
		got.attached, got.err = d.Attach(within(t, 20*time.Second), a)
	}
	if got.err != nil || !got.attached.Ours {
		t.Errorf("got %+v: %v", got.attached, got.err)
	}

	testenv.Eventually(t, "it is known", func() bool { lost, err := d.Lost(a); return err == nil && !lost })

	// What is attached is known without it.
	d.proxy.Away()
	if _, err := d.Attach(within(t, 20*time.Second), a); err != nil {
		t.Errorf("attached, and the API server away: %v", err)
	}
	if lost, err := d.Lost(a); err != nil || lost {
		t.Errorf("lost: %t, %v", lost, err)
	}
	says(t, d.Detach(within(t, 5*time.Second), a), flex.CodeUnavailable, "look at node node-1")
	if s := d.cluster.Status(); s.Reachable || !s.Asked || s.LastError == "" {
		t.Errorf("status %+v", s)
	}
	d.proxy.Back()
	testenv.Eventually(t, "the API server is back", func() bool { return d.cluster.Status().Reachable })
	d.proxy.Fail(controlplane.Fault{Verb: "delete", Resource: "volumeattachments", Code: 500, Times: 1})
	says(t, d.Detach(within(t, 5*time.Second), a), flex.CodeUnavailable, "delete VolumeAttachment "+name(a))
	if got, err := d.Attach(within(t, 5*time.Second), a); err != nil || !got.Ours {
		t.Errorf("it is still there: %+v, %v", got, err)
	}
	d.proxy.Fail(controlplane.Fault{Verb: "delete", Resource: "volumeattachments", Code: 500, Times: 1, After: true})
	says(t, d.Detach(within(t, 5*time.Second), a), flex.CodeUnavailable, "delete VolumeAttachment")
	done = attaching(t, d, a)
	select {
	case got := <-done:
		t.Errorf("attached while it is being detached: %+v", got)
	case <-time.After(300 * time.Millisecond):
	}
	x.detach(name(a))
	x.attach(name(a))
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
}

// testUnanswered: the request was not answered, and the attachment exists.
func testUnanswered(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("unanswered", "node-1")
	d.proxy.Fail(controlplane.Fault{Verb: "create", Resource: "volumeattachments", Code: 500, Times: 1, After: true})
	_, err := d.Attach(within(t, 5*time.Second), a)
	says(t, err, flex.CodeUnavailable, "create VolumeAttachment "+name(a))
	if errors.Is(err, csivol.ErrNotBegun) || !there(x.get(name(a))) {
		t.Errorf("it was made: %v", err)
	}
	x.attach(name(a))
	if got, err := d.Attach(within(t, 5*time.Second), a); err != nil || !got.Ours {
		t.Errorf("got %+v, %v", got, err)
	}

	// One that is refused was not.
	a = volume("refused", "node-1")
	a.AccessModes = append(a.AccessModes, "Sometimes")
	_, err = d.Attach(within(t, 5*time.Second), a)
	says(t, err, flex.CodeInvalidArgument, "Sometimes")
	if !errors.Is(err, csivol.ErrNotBegun) {
		t.Errorf("nothing was asked for: %v", err)
	}
	// The second look for other nodes is not left out.
	a = volume("looked", "node-1")
	d.proxy.Fail(controlplane.Fault{Verb: "list", Resource: "volumeattachments", Code: 500, Times: 1})
	_, err = d.Attach(within(t, 5*time.Second), a)
	says(t, err, flex.CodeUnavailable, "ask which nodes have volume")
	done := attaching(t, d, a)
	x.wait(name(a), there)
	d.proxy.Fail(controlplane.Fault{Verb: "list", Resource: "volumeattachments", Code: 500, Times: 3})
	x.attach(name(a))
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
}

// testWatches: watches that end or expire are started again.
func testWatches(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	for i, fault := range []controlplane.Fault{
		{Verb: "watch", Code: 410, Times: 2},
		{Verb: "watch", Code: 500, Times: 2},
		{Verb: "watch", Code: 429, Times: 2},
	} {
		a := volume("watched-"+string(rune('a'+i)), "node-1")
		done := attaching(t, d, a)
		x.wait(name(a), there)
		d.proxy.Fail(fault)
		d.proxy.CutWatches()
		x.attach(name(a))
		if got := <-done; got.err != nil {
			t.Errorf("%+v: %v", fault, got.err)
		}
		testenv.Eventually(t, "it is known", func() bool { lost, err := d.Lost(a); return err == nil && !lost })
		d.proxy.Heal()
	}
}

// testReplaced: an object that has replaced the one to delete stays. It does so just before
// the request, which names the object that the cache has.
func testReplaced(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("replaced", "node-1")
	done := attaching(t, d, a)
	x.attach(name(a))
	<-done
	testenv.Eventually(t, "it is known", func() bool { lost, err := d.Lost(a); return err == nil && !lost })
	d.proxy.Fail(controlplane.Fault{Verb: "watch", Code: 503, Times: 1000})
	d.proxy.CutWatches()
	old := x.get(name(a))
	var fresh *storagev1.VolumeAttachment
	replace := sync.OnceFunc(func() {
		client := p.Admin().StorageV1().VolumeAttachments()
		if err := client.Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		x.detach(old.Name)
		var err error
		fresh, err = client.Create(t.Context(), &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels}, Spec: old.Spec,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	d.proxy.Meet(func(r controlplane.Request) *controlplane.Fault {
		if r.Verb == "delete" {
			replace()
		}
		return nil
	})
	says(t, d.Detach(within(t, time.Minute), a), flex.CodeAborted, "delete VolumeAttachment")
	d.proxy.Meet(nil)
	if o := x.get(name(a)); fresh == nil || !there(o) || o.UID != fresh.UID {
		t.Errorf("it deleted another: %v", o)
	}
	d.proxy.Heal()
}

// testDeaf: while the watch is broken another attachment may have taken the place
// of the one that is known, and a stage with the publish context of that would be
// of another device.
func testDeaf(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("deaf", "node-1")
	done := attaching(t, d, a)
	x.attach(name(a))
	<-done
	testenv.Eventually(t, "it is known", func() bool { lost, err := d.Lost(a); return err == nil && !lost })
	d.proxy.Fail(controlplane.Fault{Verb: "watch", Code: 503, Times: 1000})
	d.proxy.Requests()
	d.proxy.CutWatches()
	testenv.Eventually(t, "the watch is broken", func() bool { return d.proxy.Requests()["watch volumeattachments"] > 0 })
	client := p.Admin().StorageV1().VolumeAttachments()
	old := x.get(name(a))
	if err := client.Delete(t.Context(), name(a), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.detach(name(a))
	fresh := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels}, Spec: old.Spec}
	if _, err := client.Create(t.Context(), fresh, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func(context.Context, *csivol.Attachment) (csivol.Attached, error){"Attach": d.Attach, "Await": d.Await} {
		got, err := ask(within(t, 2*time.Second), a)
		if err == nil {
			t.Errorf("%s: it was attached before: %+v", what, got)
		}
	}
	d.proxy.Heal()
}

// testFinalizer: a delete before the external-attacher has begun fails if it begins just
// then. Otherwise the volume would never be detached.
func testFinalizer(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("begun", "node-1")
	_, err := d.Attach(within(t, time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded)
	d.proxy.Fail(controlplane.Fault{Verb: "watch", Code: 503, Times: 1000})
	d.proxy.CutWatches()
	x.begin(name(a))
	d.proxy.Requests()
	detached := make(chan error, 1)
	go func() { detached <- d.Detach(within(t, 20*time.Second), a) }()
	x.wait(name(a), leaving)
	if n := d.proxy.Requests()["delete volumeattachments"]; n != 2 {
		t.Errorf("it was deleted after %d tries, want 2: the first must not have done it", n)
	}
	d.proxy.Heal()
	x.detach(name(a))
	if err := <-detached; err != nil {
		t.Error(err)
	}
}

// testBeginning: a daemon that starts while the API server is away knows what
// the run before knew of CSI drivers, and nothing of attachments.
func testBeginning(t *testing.T, p *controlplane.Plane) {
	yes, audience := true, "vault"
	p.CSIDriver("kept.csi.example.com", storagev1.CSIDriverSpec{PodInfoOnMount: &yes, RequiresRepublish: &yes, TokenRequests: []storagev1.TokenRequest{{Audience: audience}}})
	x := p.Proxy()
	file := filepath.Join(t.TempDir(), "cluster.json")
	connect := func() (*kube.Cluster, *kube.Attachments) {
		c, err := kube.Connect(kube.Options{Kubeconfig: x.Kubeconfig(controlplane.Admin), StateFile: file})
		if err != nil {
			t.Fatal(err)
		}
		return c, c.Attachments("node-1", objects.AttachedByNode)
	}
	want := csivol.DriverInfo{AttachRequired: true, PodInfoOnMount: true, RequiresRepublish: true, FSGroupPolicy: "ReadWriteOnceWithFSType", Tokens: []csivol.TokenRequest{{Audience: audience}}}
	for _, away := range []bool{false, true} {
		if away {
			x.Away()
		}
		c, attachments := connect()
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			c.Run(ctx)
		}()
		testenv.Eventually(t, "the driver is known", func() bool {
			got, found, synced := c.CSIDriver("kept.csi.example.com")
			return found && synced == !away && len(got.Tokens) == 1 && got.Tokens[0] == want.Tokens[0] && got.PodInfoOnMount && got.AttachRequired && got.RequiresRepublish && got.FSGroupPolicy == want.FSGroupPolicy
		})
		if _, found, synced := c.CSIDriver("none.csi.example.com"); found || synced == away {
			t.Errorf("away %t: a driver that is not there: %t, %t", away, found, synced)
		}
		if away {
			if _, err := attachments.Lost(volume("any", "node-1")); flex.CodeOf(err) != flex.CodeUnavailable {
				t.Errorf("it claims to know: %v", err)
			}
			_, err := attachments.List(within(t, 100*time.Millisecond))
			says(t, err, flex.CodeUnavailable, "not known yet")
			_, err = attachments.Await(within(t, time.Second), volume("any", "node-1"))
			says(t, err, flex.CodeUnavailable, "pv-any")
		}
		stop()
		<-over
	}
}
