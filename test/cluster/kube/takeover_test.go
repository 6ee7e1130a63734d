package kube_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
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
