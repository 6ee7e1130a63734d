package kube_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testTakenOver: what the control plane has taken over is left to it.
func testTakenOver(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	attach := func(handle string) *csivol.Attachment {
		a := volume(handle, "node-1")
		done := attaching(t, d, a)
		x.attach(name(a))
		if got := <-done; got.err != nil {
			t.Error(got.err)
		}
		return a
	}
	stays := func(a *csivol.Attachment) {
		t.Helper()
		if err := d.Detach(within(t, 5*time.Second), a); err != nil || !there(x.get(name(a))) {
			t.Errorf("%s: %v, %v", a.Handle, err, x.get(name(a)))
		}
	}
	inUse, attached := attach("in-use"), attach("attached")
	nodeHas(t, p, "in-use", "attached")
	stays(inUse)
	stays(attached)
	nodeHas(t, p, "", "")

	stop := x.run()
	defer stop()
	migrated := attach("migrated")
	p.PersistentVolume("pv-migrated", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "migrated"}}, corev1.ReadWriteOnce)
	p.ServiceAccount("default", "migrant")
	pod := p.Pod("default", "migrant", "node-1", "migrant", "pv-migrated")
	stays(migrated)
	d.proxy.Fail(controlplane.Fault{Verb: "list", Resource: "pods", Code: 403, Times: 1})
	says(t, d.Detach(within(t, 5*time.Second), migrated), flex.CodePermissionDenied, "list pods of node node-1")
	now := int64(0)
	if err := p.Admin().CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*csivol.Attachment{inUse, attached, migrated} {
		if err := d.Detach(within(t, 5*time.Second), a); err != nil || x.get(name(a)) != nil {
			t.Errorf("%s: %v, %v", a.Handle, err, x.get(name(a)))
		}
	}
}

// nodeHas says on the node which CSI volumes the kubelet uses, and which the
// control plane has attached.
func nodeHas(t *testing.T, p *controlplane.Plane, inUse, attached string) {
	t.Helper()
	unique := func(handle string) corev1.UniqueVolumeName {
		return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + handle)
	}
	nodes := p.Admin().CoreV1().Nodes()
	n, err := nodes.Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil
	if inUse != "" {
		n.Status.VolumesInUse = []corev1.UniqueVolumeName{unique(inUse)}
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: unique(attached)}}
	}
	if _, err := nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// testHandedBack: if the control plane is about to detach the volume, as after a
// rollback, attach waits for that and creates the attachment again.
func testHandedBack(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	stop := x.run()
	defer stop()
	defer nodeHas(t, p, "", "")
	first := func(handle string) (*csivol.Attachment, string) {
		a := volume(handle, "node-1")
		if got := <-attaching(t, d, a); got.err != nil {
			t.Fatal(got.err)
		}
		return a, string(x.get(name(a)).UID)
	}
	held, uid := first("held")
	nodeHas(t, p, "held", "held")
	held.KubeletHolds = true
	if got := <-attaching(t, d, held); got.err != nil || !got.attached.AttachedAsCSI || string(x.get(name(held)).UID) != uid {
		t.Errorf("the kubelet holds it: %+v", got)
	}

	left, uid := first("left")
	nodeHas(t, p, "left", "left") // which the kubelet tells late
	_, err := d.Attach(within(t, 3*time.Second), left)
	says(t, err, flex.CodeUnavailable, "only when kube-controller-manager has detached it")
	again := attaching(t, d, left)
	select {
	case got := <-again:
		t.Fatalf("attached by what is about to go: %+v", got)
	case <-time.After(2 * time.Second):
	}
	// As kube-controller-manager does it: first the node, then the attachment.
	nodeHas(t, p, "", "")
	time.Sleep(time.Second)
	if err := p.Admin().StorageV1().VolumeAttachments().Delete(t.Context(), name(left), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.staysGone(name(left), uid)
	if got := <-again; got.err != nil || got.attached.AttachedAsCSI || string(x.get(name(left)).UID) == uid {
		t.Errorf("%v, %v", got, x.get(name(left)))
	}
	for _, a := range []*csivol.Attachment{held, left} {
		if err := d.Detach(within(t, 5*time.Second), a); err != nil || x.get(name(a)) != nil {
			t.Errorf("%s: %v, %v", a.Handle, err, x.get(name(a)))
		}
	}
}

// staysGone wants kube-controller-manager to see that an object is gone. It looks for
// the name every 7.7 seconds in the end, takes a new one for the old one, and deletes
// it two minutes later.
func (x attacher) staysGone(name, uid string) {
	x.t.Helper()
	const longest = 7700 * time.Millisecond
	for o := x.get(name); o != nil && string(o.UID) == uid; o = x.get(name) {
		time.Sleep(20 * time.Millisecond)
	}
	for gone := time.Now(); time.Since(gone) < longest; time.Sleep(20 * time.Millisecond) {
		if x.get(name) != nil {
			x.t.Errorf("the VolumeAttachment is there again after %v", time.Since(gone))
			return
		}
	}
}

// testAboutToGo: what was seen to be about to go was taken for kept when the node
// could not be looked at any more, or the time was up before the VolumeAttachment
// went, too. Then a pod got what was detached under it.
func testAboutToGo(t *testing.T, p *controlplane.Plane) {
	d, x := start(t, p, "node-1"), attacher{p, t}
	stop := x.run()
	defer stop()
	defer nodeHas(t, p, "", "")
	a := volume("going", "node-1")
	if got := <-attaching(t, d, a); got.err != nil {
		t.Fatal(got.err)
	}
	for name, then := range map[string]func(){
		"the node cannot be looked at": func() {
			d.proxy.Fail(controlplane.Fault{Verb: "get", Resource: "nodes", Code: 500})
		},
		"the node does not list it any more": func() { nodeHas(t, p, "", "") },
	} {
		nodeHas(t, p, "going", "going")
		d.proxy.Requests()
		ctx := within(t, 5*time.Second) // which is shorter than the gap
		done := make(chan error, 1)
		go func() {
			_, err := d.Attach(ctx, a)
			done <- err
		}()
		looks := 0
		testenv.Eventually(t, "attach waits", func() bool {
			looks += d.proxy.Requests()["get nodes"]
			return looks > 1
		})
		then()
		t.Log(name)
		says(t, <-done, flex.CodeUnavailable, "only when kube-controller-manager has detached it")
		d.proxy.Heal()
	}
	nodeHas(t, p, "", "")
	if got := <-attaching(t, d, a); got.err != nil || got.attached.AttachedAsCSI {
		t.Errorf("it is not about to be detached: %+v", got)
	}
	if err := d.Detach(within(t, 5*time.Second), a); err != nil {
		t.Error(err)
	}
}

// testPVState: an inline volume has not lost its PersistentVolume.
func testPVState(t *testing.T, p *controlplane.Plane) {
	c := start(t, p, "node-1").cluster
	p.ServiceAccount("default", "inline")
	pod, err := p.Admin().CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "inline"},
		Spec: corev1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "inline", Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: flexDriver}}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for volume, gone := range map[string]bool{"own": false, "another": true} {
		f, err := c.PVState(within(t, 5*time.Second), volume, csivol.Key{Driver: driver, Handle: "h"}, string(pod.UID))
		if err != nil || f.Gone != gone || (f.Pod != "") != gone {
			t.Errorf("%s: %+v, %v", volume, f, err)
		}
	}
}
