package kube_test

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// TestAttachments has one control plane for all.
func TestAttachments(t *testing.T) {
	p := controlplane.Start(t)
	for _, node := range []string{"node-1", "node-2"} {
		p.Node(node, controlplane.NodeDriver{Name: driver, NodeID: "id-" + node, Count: 20})
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, *controlplane.Plane)
	}{
		{"life", testLife},
		{"foreign", testForeign},
		{"usurped", testUsurped},
		{"elsewhere", testElsewhere},
		{"unlabeled", testUnlabeled},
		{"race", testRace},
		{"driver fails", testDriverFails},
		{"deleted", testDeleted},
		{"changed", testChanged},
		{"await", testAwait},
		{"away", testAway},
		{"unanswered", testUnanswered},
		{"watches", testWatches},
		{"replaced", testReplaced},
		{"deaf", testDeaf},
		{"finalizer", testFinalizer},
		{"beginning", testBeginning},
		{"taken over", testTakenOver},
		{"PV state", testPVState},
		{"handed back", testHandedBack},
		{"about to go", testAboutToGo},
		{"volumes", testVolumes},
		{"secrets", testSecrets},
		{"tokens", testTokens},
		{"notices", testNotices},
		{"many", testMany},
		{"slow", testSlow},
		{"election", testElection},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, p.With(t)) })
	}
}

type outcome struct {
	attached csivol.Attached
	err      error
}

// attaching calls Attach in the background.
func attaching(t *testing.T, d *daemon, a *csivol.Attachment) <-chan outcome {
	done := make(chan outcome, 1)
	ctx := within(t, 40*time.Second)
	go func() {
		attached, err := d.Attach(ctx, a)
		done <- outcome{attached, err}
	}()
	return done
}

// testLife: an attachment as it should be.
func testLife(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("life", "node-1")
	a.Pod = csivol.Pod{Namespace: "default", Name: "web"}
	a.MountFlags = []string{"noatime"}
	a.Secret = &csivol.SecretRef{Namespace: "storage", Name: "key"}
	d.proxy.Requests()
	done := attaching(t, d, a)
	o := x.wait(name(a), there)
	checkObject(t, o)
	x.attach(name(a))
	want := csivol.Attached{Object: name(a), PublishContext: map[string]string{"device": "/dev/node-1"}, Ours: true, Name: a.Name}
	if got := <-done; got.err != nil || cmp.Diff(want, got.attached) != "" {
		t.Errorf("got %+v", got)
	}
	// Before and after it creates: those of the bridge, by their label, and the others, until
	// the watch of them that begins now is settled.
	got := d.proxy.Requests()
	delete(got, "watch volumeattachments")
	if want := map[string]int{"list volumeattachments": 4, "create volumeattachments": 1}; !maps.Equal(got, want) {
		t.Errorf("an attach asked for %v, want %v", got, want)
	}

	for range 10 {
		if got, err := d.Attach(t.Context(), a); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("again: %+v, %v", got, err)
		}
		if got, err := d.Await(t.Context(), a); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("await: %+v, %v", got, err)
		}
		if lost, err := d.Lost(a); err != nil || lost {
			t.Errorf("lost: %t, %v", lost, err)
		}
	}
	// But for whether the control plane is about to delete what it has adopted.
	if got := d.proxy.Requests(); got["get nodes"] != 20 || len(got) != 1 {
		t.Errorf("what is known was asked for: %v", got)
	}

	detached := make(chan error, 1)
	go func() { detached <- d.Detach(within(t, 20*time.Second), a) }()
	x.wait(name(a), leaving)
	select {
	case err := <-detached:
		t.Errorf("detached before it was gone: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if lost, err := d.Lost(a); err != nil || !lost {
		t.Errorf("being detached, lost is %t, %v", lost, err)
	}
	x.detach(name(a))
	if err := <-detached; err != nil || x.get(name(a)) != nil {
		t.Errorf("detached: %v", err)
	}
	if err := d.Detach(t.Context(), a); err != nil {
		t.Errorf("detached twice: %v", err)
	}
}

func checkObject(t *testing.T, o *storagev1.VolumeAttachment) {
	t.Helper()
	spec := o.Spec.Source.InlineVolumeSpec
	if o.Spec.Attacher != driver || o.Spec.NodeName != "node-1" || spec.CSI.VolumeHandle != "life" || spec.CSI.VolumeAttributes["share"] != "/a" || spec.CSI.FSType != "ext4" ||
		spec.MountOptions[0] != "noatime" || spec.CSI.ControllerPublishSecretRef.Name != "key" || spec.AccessModes[0] != "ReadWriteOnce" {
		t.Errorf("asked for %+v", o.Spec)
	}
	want := map[string]string{
		objects.ManagedByLabel: "flex2csi", objects.AttachedByLabel: "node", objects.NodeLabel: "node-1",
		objects.VolumeLabel: objects.VolumeID(driver, "life"), objects.PersistentVolumeLabel: "pv-life",
	}
	if diff := cmp.Diff(want, o.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	want = map[string]string{objects.PersistentVolumeAnnotation: "pv-life", objects.FlexDriverAnnotation: flexDriver, objects.PodAnnotation: "default/web"}
	if diff := cmp.Diff(want, o.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
}
