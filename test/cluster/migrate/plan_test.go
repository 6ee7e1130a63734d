package migrate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestPlan: methods, on one control plane.
func TestPlan(t *testing.T) {
	w := start(t)
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"Methods", testMethods},
		{"Bridge", testBridge},
		{"Refused", testRefused},
		{"Attachments", testAttachments},
		{"Nodes", testNodes},
		{"Admission", testAdmission},
		{"Decisions", testDecisions},
		{"Secrets", testSecrets},
		{"Selection", testSelection},
		{"Related", testRelated},
		{"Rights", testRights},
		{"MigratorRights", testMigratorRights},
		{"Replace", testReplace},
		{"InstalledConfig", testInstalledConfig},
		{"Reporter", testReporter},
		{"Command", testCommand},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

func testMethods(w *world) {
	w.disk("idle")
	says(w.t, w.one("idle"), migrate.Live, "pods", migrate.OK, "no pod uses the claim")

	w.disk("live")
	pod := w.pod("live", "node-1", "live")
	w.bridge("node-1", has("live", pod))
	w.attached("live", "node-1")
	v := w.one("live")
	says(w.t, v, migrate.Live, "bridge", migrate.OK, "staged where the kubelet would stage it")
	says(w.t, v, migrate.Live, "attachments", migrate.OK, "has the name by which the control plane adopts it")
	says(w.t, v, migrate.Live, "dry-run", migrate.OK, "stores it as it is")
	says(w.t, v, migrate.Live, "csi-node", migrate.OK, "registered on node node-1")
	if v.Claim != "default/live" || v.Handle != "vol-live" || v.CSIDriver != csiDriver || len(v.Steps) < 8 || len(v.Expect) < 2 || v.Original.UID == "" {
		w.t.Errorf("%+v", v)
	}

	w.disk("restart")
	w.pod("restart", "node-1", "restart", ownedBy("StatefulSet", "db"))
	says(w.t, w.one("restart"), migrate.PodRestart, "bridge", migrate.NotLive, "does not have the volume from the bridge")

	w.disk("offline")
	w.pod("offline", "node-1", "offline")
	says(w.t, w.one("offline"), migrate.Offline, "bridge", migrate.NotLive, "does not have the volume from the bridge")

	w.disk("shared")
	first, second := w.pod("shared-1", "node-1", "shared", ownedBy("ReplicaSet", "none")), w.pod("shared-2", "node-1", "shared", ownedBy("ReplicaSet", "none"))
	w.bridge("node-1", has("shared", first))
	w.attached("shared", "node-1")
	says(w.t, w.one("shared"), migrate.Offline, "bridge", migrate.NotLive, "pod default/shared-2 does not")
	w.bridge("node-1")
	w.check(w.Admin().CoreV1().Pods("default").Delete(w.t.Context(), second.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	says(w.t, w.one("shared"), migrate.Live, "bridge", migrate.OK, "pod default/shared-1 has it")
}

// testBridge: what the bridge of a node says has to be of this pod and this boot.
func testBridge(w *world) {
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"elsewhere", "doubt", "another", "nostage"} {
		w.disk(name)
		pods[name] = w.pod(name, "node-1", name)
	}
	elsewhere, doubt, another, nostage := has("elsewhere", pods["elsewhere"]), has("doubt", pods["doubt"]), has("another", pods["another"]), has("nostage", pods["nostage"])
	elsewhere.Staged, doubt.Uncertain, another.PersistentVolume, nostage.Staged = bridgestatus.StagedElsewhere, true, "pv-of-before", bridgestatus.NotStaged
	w.bridge("node-1", elsewhere, doubt, another, nostage)
	for name, want := range map[string]string{"elsewhere": "staged where the kubelet would not", "doubt": "under way", "another": "for PersistentVolume pv-of-before"} {
		says(w.t, w.one(name), migrate.Offline, "bridge", migrate.NotLive, want)
	}
	v := w.one("nostage")
	says(w.t, v, migrate.Live, "bridge", migrate.OK, "does not stage")
	says(w.t, v, migrate.Live, "attachments", migrate.Note, "no VolumeAttachment to node node-1")

	w.disk("silent")
	w.pod("silent", "node-2", "silent")
	says(w.t, w.one("silent"), migrate.Offline, "bridge", migrate.NotLive, "has written no ConfigMap flex2csi-nodes/node-2")
	put := func(data string) {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}, Data: map[string]string{bridgestatus.Key: data}}
		_ = w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Delete(w.t.Context(), "node-2", metav1.DeleteOptions{})
		_, err := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
		w.check(err)
	}
	for data, want := range map[string]string{
		`{"apiVersion":"flex2csi.io/v1alpha1","kind":"NodeVolumes","node":"node-2","bootID":"another"}`: "before node node-2 was started the last time",
		`{"apiVersion":"flex2csi.io/v1alpha1","kind":"NodeVolumes","node":"node-1"}`:                    "it is that of node node-1",
		`{"apiVersion":"v2","kind":"NodeVolumes"}`:                                                      "cannot be read: it is a NodeVolumes of v2",
		`[`: "cannot be read: unexpected end of JSON",
	} {
		put(data)
		says(w.t, w.one("silent"), migrate.Offline, "bridge", migrate.NotLive, want)
	}
	put(`{"apiVersion":"flex2csi.io/v1alpha1","kind":"NodeVolumes","node":"node-2","bootID":"another"}`)
}

// testRefused: what stands in the way in any case.
func testRefused(w *world) {
	w.disk("foreign", func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/keep") })
	says(w.t, w.one("foreign"), migrate.No, "finalizers", migrate.Fails, "example.com/keep")
	w.change("foreign", func(pv *corev1.PersistentVolume) { pv.Finalizers = nil })

	w.disk("stale", func(pv *corev1.PersistentVolume) {
		pv.Finalizers = append(pv.Finalizers, "external-attacher/disk-example-com")
	})
	says(w.t, w.one("stale"), migrate.Live, "finalizers", migrate.OK, "external-attacher/disk-example-com")

	w.disk("going")
	claims := w.Admin().CoreV1().PersistentVolumeClaims("default")
	_, err := claims.Patch(w.t.Context(), "going", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/keep"]}}`), metav1.PatchOptions{})
	w.check(err)
	w.check(claims.Delete(w.t.Context(), "going", metav1.DeleteOptions{}))
	says(w.t, w.one("going"), migrate.No, "claim", migrate.Fails, "is being deleted")

	w.disk("taken")
	w.PersistentVolume("taker", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "vol-taken"}})
	says(w.t, w.one("taken"), migrate.No, "handle", migrate.Fails, "PersistentVolume taker is the same volume already")
	says(w.t, w.one("taker"), migrate.No, "flex-volume", migrate.Fails, "it is a CSI volume of "+csiDriver)

	for _, name := range []string{"twin-1", "twin-2"} {
		w.FlexVolume(name, flexDriver, "ext4", map[string]string{"volumeID": "twins"})
	}
	says(w.t, w.one("twin-1"), migrate.No, "handle", migrate.Fails, "PersistentVolume twin-2 would become the same volume")

	w.FlexVolume("strange", "example.com/strange", "", nil)
	says(w.t, w.one("strange"), migrate.No, "mapping", migrate.Fails, "the configuration has no driver example.com/strange")
	w.FlexVolume("empty", flexDriver, "", nil)
	says(w.t, w.one("empty"), migrate.No, "mapping", migrate.Fails, "the handle is empty")

	w.disk("deleted")
	w.check(w.Admin().CoreV1().PersistentVolumes().Delete(w.t.Context(), "deleted", metav1.DeleteOptions{}))
	says(w.t, w.one("deleted"), migrate.No, "state", migrate.Fails, "it is being deleted since")

	w.disk("claimless")
	_, err = claims.Patch(w.t.Context(), "claimless", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	w.check(err)
	w.check(claims.Delete(w.t.Context(), "claimless", metav1.DeleteOptions{}))
	testenv.Eventually(w.t, "the volume is released", func() bool { return w.one("claimless").Original.Phase == "Released" })
	says(w.t, w.one("claimless"), migrate.Live, "state", migrate.Note, "its claim default/claimless is gone")
}

func testAttachments(w *world) {
	w.disk("misnamed")
	w.attached("misnamed", "node-1", func(a *storagev1.VolumeAttachment) { a.Name = "by-hand" })
	says(w.t, w.one("misnamed"), migrate.No, "attachments", migrate.Fails, "does not have the name")

	w.disk("left")
	w.attached("left", "node-2")
	says(w.t, w.one("left"), migrate.No, "attachments", migrate.Fails, "to node node-2, where no pod uses it")

	w.disk("stuck")
	w.attached("stuck", "node-1")
	name := objects.AttachmentName("vol-stuck", csiDriver, "node-1")
	o, err := w.Admin().StorageV1().VolumeAttachments().Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	o.Status.Attached, o.Status.AttachError = false, &storagev1.VolumeError{Message: "no such disk"}
	_, err = w.Admin().StorageV1().VolumeAttachments().UpdateStatus(w.t.Context(), o, metav1.UpdateOptions{})
	w.check(err)
	says(w.t, w.one("stuck"), migrate.No, "attachments", migrate.Fails, "is not attached, attachError: no such disk")

	w.disk("named")
	_, err = w.Admin().StorageV1().VolumeAttachments().Create(w.t.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "named"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "old.example.com", NodeName: "gone", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("named")}},
	}, metav1.CreateOptions{})
	w.check(err)
	// kube-controller-manager takes away what it can; one of a node that is gone stays.
	says(w.t, w.one("named"), migrate.No, "attachments", migrate.Fails, "names the PersistentVolume")
}

func testNodes(w *world) {
	w.disk("unregistered")
	w.pod("unregistered", "bare", "unregistered")
	says(w.t, w.one("unregistered"), migrate.No, "csi-node", migrate.Fails, "is not registered with the kubelet of node bare")

	w.disk("vanished")
	w.pod("vanished", "gone", "vanished")
	says(w.t, w.one("vanished"), migrate.No, "node", migrate.Fails, "node gone is gone")

	w.node("old")
	nodes := w.Admin().CoreV1().Nodes()
	_, err := nodes.Patch(w.t.Context(), "old", types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`), metav1.PatchOptions{})
	w.check(err)
	status := []byte(`{"status":{"nodeInfo":{"kubeletVersion":"v1.20.0"},"conditions":[{"type":"Ready","status":"False"}]}}`)
	_, err = nodes.Patch(w.t.Context(), "old", types.MergePatchType, status, metav1.PatchOptions{}, "status")
	w.check(err)
	w.disk("on-old")
	w.pod("on-old", "old", "on-old")
	v := w.one("on-old")
	says(w.t, v, migrate.No, "node", migrate.Fails, "attaches by itself")
	says(w.t, v, migrate.No, "node", migrate.Fails, "is v1.20.0")
	says(w.t, v, migrate.No, "node", migrate.NotLive, "is not Ready")
}
