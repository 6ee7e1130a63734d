package kube_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// says checks that an error has a code and all these words.
func says(t *testing.T, err error, code flex.Code, words ...string) {
	t.Helper()
	if flex.CodeOf(err) != code {
		t.Errorf("code %s of %v, want %s", flex.CodeOf(err), err, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v\ndoes not say %s", err, word)
		}
	}
}

// testDriverFails: the attacher says why and tries on; so does who waits.
func testDriverFails(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("failing", "node-1")
	done := attaching(t, d, a)
	x.wait(name(a), there)
	x.begin(name(a))
	x.fail(name(a), "rpc error: code = Internal desc = backend is on fire", 13)
	time.Sleep(200 * time.Millisecond)
	x.change(name(a), func(o *storagev1.VolumeAttachment) {
		o.Status = storagev1.VolumeAttachmentStatus{Attached: true}
	}, true)
	if got := <-done; got.err != nil {
		t.Errorf("it was attached in the end: %v", got.err)
	}

	a = volume("full", "node-1")
	_, err := d.Attach(within(t, 3*time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded, "pv-full", "node-1", name(a), "no external-attacher has begun", driver)
	x.begin(name(a))
	_, err = d.Attach(within(t, 3*time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded, "has not answered ControllerPublishVolume")
	x.fail(name(a), "rpc error: code = ResourceExhausted desc = "+strings.Repeat("no more slots ", 60), 8)
	_, err = d.Attach(within(t, 3*time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded, "code = ResourceExhausted desc = no more slots", " of at most 20 volumes of CSI driver "+driver)
	if errors.Is(err, csivol.ErrNotBegun) || len(err.Error()) > 900 {
		t.Errorf("begun, and short: %d, %v", len(err.Error()), err)
	}
	a = volume("unregistered", "node-1")
	a.Driver = "other.csi.example.com"
	_, err = d.Attach(within(t, 3*time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded, "other.csi.example.com is not registered on node node-1")

	a = volume("stuck", "node-1")
	done = attaching(t, d, a)
	x.attach(name(a))
	<-done
	says(t, d.Detach(within(t, 3*time.Second), a), flex.CodeDeadlineExceeded, "stuck", "has not detached it")
	x.change(name(a), func(o *storagev1.VolumeAttachment) {
		o.Status.DetachError = &storagev1.VolumeError{Message: "rpc error: code = Internal desc = wedged", Time: metav1.Now()}
	}, true)
	says(t, d.Detach(within(t, 3*time.Second), a), flex.CodeDeadlineExceeded, "wedged")
	x.detach(name(a))
	if err := d.Detach(within(t, 5*time.Second), a); err != nil {
		t.Error(err)
	}
}

// testDeleted: an attachment that was deleted is re-created when it is gone.
func testDeleted(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("deleted", "node-1")
	done := attaching(t, d, a)
	first := x.wait(name(a), there)
	x.begin(name(a))
	for range 2 { // under the one who waits, then before he asks
		if err := p.Admin().StorageV1().VolumeAttachments().Delete(t.Context(), name(a), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-done:
			t.Fatalf("while it was being deleted: %+v", got)
		case <-time.After(200 * time.Millisecond):
		}
		x.detach(name(a))
		second := x.wait(name(a), func(o *storagev1.VolumeAttachment) bool { return there(o) && o.UID != first.UID })
		x.attach(name(a))
		if got := <-done; got.err != nil || second.UID == first.UID {
			t.Errorf("got %+v", got)
		}
		first = second
		testenv.Eventually(t, "it is there", func() bool { lost, err := d.Lost(a); return err == nil && !lost })
		if err := p.Admin().StorageV1().VolumeAttachments().Delete(t.Context(), name(a), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, "it is lost", func() bool { lost, err := d.Lost(a); return err == nil && lost })
		done = attaching(t, d, a)
	}
	x.detach(name(a))
	x.attach(name(a))
	if got := <-done; got.err != nil {
		t.Errorf("got %+v", got)
	}
}

// testChanged: an attachment with a wrong spec that is not attached yet is re-created.
func testChanged(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("changed", "node-1")
	a.Context = map[string]string{"share": "/worng"}
	if _, err := d.Attach(within(t, time.Second), a); err == nil {
		t.Error("attached without an attacher")
	}
	first := x.get(name(a))
	x.fail(name(a), "no such share", 5)
	_, err := d.Attach(within(t, time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded, "gRPC code 5, no such share")
	a.Context = map[string]string{"share": "/right"}
	done := attaching(t, d, a)
	x.wait(name(a), func(o *storagev1.VolumeAttachment) bool { return there(o) && o.UID != first.UID })
	x.attach(name(a))
	if got := <-done; got.err != nil || x.get(name(a)).Spec.Source.InlineVolumeSpec.CSI.VolumeAttributes["share"] != "/right" {
		t.Errorf("got %+v", got)
	}
	a.Context = map[string]string{"share": "/other"} // while it is attached it stays
	if got, err := d.Attach(within(t, 20*time.Second), a); err != nil || !got.Ours {
		t.Errorf("got %+v, %v", got, err)
	}
}

// testAwait waits for what another daemon asks for.
func testAwait(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	controller := startAs(t, p, "", "controller")
	a := volume("awaited", "node-1")
	_, err := d.Await(within(t, time.Second), a)
	says(t, err, flex.CodeDeadlineExceeded, "there is no VolumeAttachment", "flex2csi controller")
	if x.get(name(a)) != nil {
		t.Error("Await asked for an attachment")
	}
	done := make(chan outcome, 1)
	go func() {
		attached, err := d.Await(within(t, 20*time.Second), a)
		done <- outcome{attached, err}
	}()
	attach := attaching(t, controller, a)
	x.attach(name(a))
	if got := <-done; got.err != nil || got.attached.Ours || got.attached.PublishContext["device"] == "" {
		t.Errorf("awaited %+v", got)
	}
	if got := <-attach; got.err != nil || !got.attached.Ours {
		t.Errorf("attached %+v", got)
	}
	if err := d.Detach(t.Context(), a); err != nil || !there(x.get(name(a))) {
		t.Errorf("the node deleted what the controller has made: %v", err)
	}
	stop := x.run()
	defer stop()
	if err := controller.Detach(within(t, 10*time.Second), a); err != nil || x.get(name(a)) != nil {
		t.Errorf("detached: %v", err)
	}
}
