package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// elsewhere is a pod in a namespace that has none of the claims.
const elsewhere = "elsewhere"

// intrude mounts an inline volume for a pod elsewhere: one with the options of a
// PersistentVolume, and a name that the author of the pod chose.
func (n *node) intrude(v *volume, name string) flex.DriverStatus {
	n.w.t.Helper()
	argument, err := flex.Options{
		FSType: "ext4", VolumeName: name, User: v.options,
		PodName: elsewhere, PodNamespace: elsewhere, PodUID: elsewhere, ServiceAccountName: "default",
	}.MarshalArgument()
	n.w.must(err)
	return n.call("mount", n.PodVolumeDir(elsewhere, n.w.flexDriver, name), argument)
}

// testImitated: an inline volume that has all of another tenant's PersistentVolume,
// its name as well, gets nothing attached and nothing staged.
func testImitated(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, v := w.nodes[0], w.volume("disk")
	device := n.DeviceMountPath(w.flexDriver, v.name)
	n.mustFail(n.call("attach", n.argument(v, ""), n.name), "which no pod of node "+n.name+" uses")
	n.must("mountdevice", device, "csi:"+v.handle, n.argument(v, ""))
	n.mustFail(n.intrude(v, v.name), "in namespace "+elsewhere)
	n.must("unmountdevice", device)
	w.wantUntouched(v)

	w.Pod(metav1.NamespaceDefault, "its-own", n.name, "", v.name)
	n.must("attach", n.argument(v, ""), n.name)
	n.must("mountdevice", device, "csi:"+v.handle, n.argument(v, ""))
	n.mustFail(n.intrude(v, v.name), "in namespace "+elsewhere)
	n.mount(v, "its-own")
	n.unmount(v, "its-own")
	n.must("unmountdevice", device)
	n.must("detach", v.name, n.name)

	unbound := w.newVolume("unbound", nil)
	w.FlexVolume(unbound.name, w.flexDriver, "ext4", unbound.options)
	w.unbind(unbound)
	n.mustFail(n.intrude(unbound, unbound.name), "bound to no claim")
	n.mustFail(n.call("mountdevice", n.DeviceMountPath(w.flexDriver, unbound.name), "csi:x", n.argument(unbound, "")), "bound to no claim")
	w.wantUntouched(unbound)
	n.wantNothing()
}

// unbind has a PersistentVolume wait for a claim.
func (w *world) unbind(v *volume) {
	w.t.Helper()
	volumes := w.Admin().CoreV1().PersistentVolumes()
	pv, err := volumes.Get(w.t.Context(), v.name, metav1.GetOptions{})
	w.must(err)
	w.must(volumes.Delete(w.t.Context(), v.name, metav1.DeleteOptions{}))
	w.must(w.Admin().CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Delete(w.t.Context(), v.name, metav1.DeleteOptions{}))
	w.wait("the PersistentVolume to go", func() bool {
		pv, err := volumes.Get(w.t.Context(), v.name, metav1.GetOptions{})
		if err == nil && len(pv.Finalizers) > 0 {
			_, _ = volumes.Patch(w.t.Context(), v.name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		return err != nil
	})
	// Until then the claim would be bound to the next one of this name. Claims are
	// not protected here, so their finalizer stays.
	claims := w.Admin().CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	w.wait("the claim to go", func() bool {
		_, err := claims.Patch(w.t.Context(), v.name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		return err != nil
	})
	pv.ObjectMeta = metav1.ObjectMeta{Name: v.name}
	pv.Spec.ClaimRef, pv.Status = nil, corev1.PersistentVolumeStatus{}
	_, err = volumes.Create(w.t.Context(), pv, metav1.CreateOptions{})
	w.must(err)
}

// wantUntouched checks that no node has a volume, and that none had.
func (w *world) wantUntouched(v *volume) {
	w.t.Helper()
	for _, dir := range append([]string{"controller"}, w.nodes[0].dir) {
		list, err := calls.Read(w.path(dir + "/calls"))
		w.must(err)
		for _, c := range list {
			if c.Volume == v.handle && slices.Contains([]string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume"}, c.Method) {
				w.t.Errorf("%s of %s was called: %s", c.Method, v.handle, c.Code)
			}
		}
	}
	if o := w.nodes[0].attachment(v); o != nil {
		w.t.Errorf("there is %+v", o)
	}
}

// testVerified: an API server that does not answer lets in no volume that was
// never verified, and keeps out none that was, also after a restart of the daemon.
func testVerified(t *testing.T, c *cluster) {
	w := newWorld(t, c, options{})
	n, known, victim := w.nodes[0], w.volume("known"), w.volume("victim")
	n.mount(known, "pod-a")
	for name, fault := range map[string]controlplane.Fault{
		"error": {Code: 500}, "busy": {Code: 429}, "unavailable": {Code: 503}, "broken": {},
	} {
		fault.Verb, fault.Resource = "get", "persistentvolumes"
		n.api.Fail(fault)
		n.mount(known, "pod-b")
		n.mustFail(n.intrude(victim, "data-"+name), "has not seen it")
		n.api.Heal()
		n.unmount(known, "pod-b")
	}
	n.api.Fail(controlplane.Fault{Verb: "get", Resource: "persistentvolumes", Code: 500})
	for range 2 {
		n.mount(known, "pod-c")
		n.mustFail(n.intrude(known, known.name), "in namespace "+elsewhere)
		n.mustFail(n.intrude(known, "data"), "has not seen it")
		n.mustFail(n.intrude(victim, victim.name), "has not seen it")
		for _, args := range [][]string{
			{"attach", n.argument(victim, ""), n.name},
			{"mountdevice", n.DeviceMountPath(w.flexDriver, victim.name), "csi:x", n.argument(victim, "")},
		} {
			n.mustFail(n.call(args...), "has not seen it")
		}
		n.unmount(known, "pod-c")
		w.must(n.daemon.Restart())
	}
	n.api.Heal()
	n.api.Slow(patience)
	n.timeout = short
	n.mustFail(n.intrude(victim, "data"))
	n.timeout = patience
	n.api.Heal()
	n.mustFail(n.intrude(victim, "data"), "no PersistentVolume of that name")
	n.mustFail(n.intrude(victim, victim.name), "in namespace "+elsewhere)
	w.wantUntouched(victim)
	n.unmount(known, "pod-a")
	n.wantNothing()
}
