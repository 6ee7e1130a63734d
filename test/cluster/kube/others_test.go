package kube_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// foreignObject is what kube-controller-manager makes for a CSI PersistentVolume.
func foreignObject(t *testing.T, p *controlplane.Plane, a *csivol.Attachment) {
	t.Helper()
	_, err := p.Admin().StorageV1().VolumeAttachments().Create(t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name(a)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: a.Driver, NodeName: a.Node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &a.Name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// testForeign: what the control plane has made is used, never deleted, and seen
// to vanish.
func testForeign(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	a := volume("foreign", "node-1")
	foreignObject(t, p, a)
	done := attaching(t, d, a)
	time.Sleep(200 * time.Millisecond)
	x.attach(name(a))
	if got := <-done; got.err != nil || got.attached.Ours || got.attached.PublishContext["device"] != "/dev/node-1" {
		t.Errorf("got %+v", got)
	}
	d.proxy.Requests()
	if lost, err := d.Lost(a); err != nil || lost {
		t.Errorf("lost: %t, %v", lost, err)
	}
	if got := d.proxy.Requests(); len(got) > 0 {
		t.Errorf("Lost asked for %v", got)
	}
	if err := d.Detach(t.Context(), a); err != nil || !there(x.get(name(a))) {
		t.Errorf("detach: %v, %v", err, x.get(name(a)))
	}
	if lost, err := d.Lost(a); lost {
		t.Errorf("Detach forgot it, and then: lost %t, %v", lost, err)
	}
	if err := p.Admin().StorageV1().VolumeAttachments().Delete(t.Context(), name(a), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it is lost", func() bool { lost, err := d.Lost(a); return err == nil && lost })
	x.detach(name(a))
}

// testUsurped: any user who may create attachments can take a name. An attachment of
// another volume with the name is neither used nor deleted, even if it is attached and
// has the labels.
func testUsurped(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	client := p.Admin().StorageV1().VolumeAttachments()
	for what, change := range map[string]func(o *storagev1.VolumeAttachment){
		"node":   func(o *storagev1.VolumeAttachment) { o.Spec.NodeName = "node-2" },
		"volume": func(o *storagev1.VolumeAttachment) { o.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = "other" },
	} {
		a := volume("usurped-"+what, "node-1")
		o := &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name(a), Labels: map[string]string{
				objects.ManagedByLabel: objects.ManagedBy, objects.AttachedByLabel: objects.AttachedByNode, objects.NodeLabel: "node-1",
			}},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{
				AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: a.Handle}},
			}}},
		}
		change(o)
		if _, err := client.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		x.attach(name(a))
		for range 2 { // as it was made just now, and as it is known
			got, err := d.Attach(within(t, 10*time.Second), a)
			says(t, err, flex.CodeFailedPrecondition, name(a), "find out who has made it")
			if !errors.Is(err, csivol.ErrNotBegun) {
				t.Errorf("another %s: nothing was asked for: %+v, %v", what, got, err)
			}
			testenv.Eventually(t, "it is not taken for the volume's", func() bool { lost, err := d.Lost(a); return err == nil && lost })
		}
		_, err := d.Await(within(t, 10*time.Second), a)
		says(t, err, flex.CodeFailedPrecondition, name(a))
		if err := d.Detach(within(t, 10*time.Second), a); err != nil || !there(x.get(name(a))) {
			t.Errorf("another %s: detach: %v, %v", what, err, x.get(name(a)))
		}
	}
}

// testElsewhere: a volume that is on another node stays there, and a person is
// told.
func testElsewhere(t *testing.T, p *controlplane.Plane) {
	d1, d2, x := start(t, p, "node-1"), start(t, p, "node-2"), attacher{p, t}
	a1, a2 := volume("moved", "node-1"), volume("moved", "node-2")
	p.ServiceAccount("default", "user")
	pod := p.Pod("default", "second", "node-2", "user")
	a2.Pod = csivol.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	done := attaching(t, d1, a1)
	x.attach(name(a1))
	<-done
	d2.proxy.Requests()
	_, err := d2.Attach(within(t, 10*time.Second), a2)
	if !errors.Is(err, csivol.ErrNotBegun) || flex.CodeOf(err) != flex.CodeFailedPrecondition || !strings.Contains(err.Error(), "node-1") || !strings.Contains(err.Error(), name(a1)) {
		t.Errorf("on another node: %v", err)
	}
	if got := d2.proxy.Requests(); got["create volumeattachments"] != 0 || got["list volumeattachments"] != 2 { // those with the label of the bridge, and the others
		t.Errorf("a refused attach asked for %v", got)
	}
	testenv.Eventually(t, "there is an event", func() bool { return hasEvent(t, p, "default", "second", "multi-attach") })

	// While it is being detached there, the other node waits.
	detached := make(chan error, 1)
	go func() { detached <- d1.Detach(within(t, 20*time.Second), a1) }()
	x.wait(name(a1), leaving)
	done = attaching(t, d2, a2)
	time.Sleep(300 * time.Millisecond)
	if x.get(name(a2)) != nil {
		t.Error("asked for while another node has it")
	}
	x.detach(name(a1))
	x.attach(name(a2))
	if got := <-done; got.err != nil || <-detached != nil {
		t.Errorf("after that: %v", got.err)
	}
	// What may be on many nodes is.
	a1.AccessModes = []csivol.AccessMode{csivol.ReadWriteMany}
	done = attaching(t, d1, a1)
	x.attach(name(a1))
	if got := <-done; got.err != nil {
		t.Errorf("ReadWriteMany: %v", got.err)
	}
}

func hasEvent(t *testing.T, p *controlplane.Plane, namespace, pod, text string) bool {
	list, err := p.Admin().CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod})
	if err != nil {
		t.Error(err)
		return false
	}
	for _, e := range list.Items {
		if strings.Contains(e.Message, text) && e.Type == corev1.EventTypeWarning && e.Reason == "FailedAttachVolume" && e.InvolvedObject.UID != "" {
			return true
		}
	}
	return false
}

// testUnlabeled: a ReadWriteOnce volume that another node has by the control plane's
// VolumeAttachment, or by what a rollback puts in its place, went to a second node:
// others were looked for by the label of flex2csi alone.
func testUnlabeled(t *testing.T, p *controlplane.Plane) {
	x := attacher{p, t}
	client := p.Admin().StorageV1().VolumeAttachments()
	for what, source := range map[string]storagev1.VolumeAttachmentSource{
		"csi": {PersistentVolumeName: new("pv-of-another-name")},
		"rolledback": {InlineVolumeSpec: &corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "unlabeled-rolledback"}},
		}},
	} {
		d := start(t, p, "node-2")
		a1, a2 := volume("unlabeled-"+what, "node-1"), volume("unlabeled-"+what, "node-2")
		if _, err := client.Create(t.Context(), &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name(a1), Finalizers: []string{finalizer}},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: "node-1", Source: source},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		x.attach(name(a1))
		_, err := d.Attach(within(t, 10*time.Second), a2)
		says(t, err, flex.CodeFailedPrecondition, "multi-attach", name(a1), "node-1")
		if !errors.Is(err, csivol.ErrNotBegun) || x.get(name(a2)) != nil {
			t.Errorf("%s: %v, and there is %v", what, err, x.get(name(a2)))
		}
		if err := client.Delete(t.Context(), name(a1), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		done := attaching(t, d, a2)
		time.Sleep(300 * time.Millisecond)
		if x.get(name(a2)) != nil {
			t.Errorf("%s: asked for while another node has it", what)
		}
		x.detach(name(a1))
		x.attach(name(a2))
		if got := <-done; got.err != nil {
			t.Errorf("%s: after that: %v", what, got.err)
		}
	}
}

// testRace: of two nodes that want a volume at once no more than one gets it,
// and the other leaves nothing behind.
func testRace(t *testing.T, p *controlplane.Plane) {
	daemons := map[string]*daemon{"node-1": start(t, p, "node-1"), "node-2": start(t, p, "node-2")}
	x := attacher{p, t}
	stop := x.run()
	defer stop()
	won := map[int]int{}
	for range 25 {
		var mu sync.Mutex
		var all sync.WaitGroup
		winners := map[string]bool{}
		for node, d := range daemons {
			all.Go(func() {
				_, err := d.Attach(within(t, 10*time.Second), volume("raced", node))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					winners[node] = true
				case !errors.Is(err, csivol.ErrNotBegun):
					t.Errorf("%s: %v", node, err)
				}
			})
		}
		all.Wait()
		won[len(winners)]++
		for node, d := range daemons {
			if o := x.get(name(volume("raced", node))); (o != nil) != winners[node] {
				t.Errorf("%s: won %t, and there is %v", node, winners[node], o)
			}
			if err := d.Detach(within(t, 10*time.Second), volume("raced", node)); err != nil {
				t.Error(err)
			}
		}
	}
	if won[1] < 20 || won[2] > 0 {
		t.Errorf("so often none, one, two had it: %v; want mostly one, and never two", won)
	}
}
