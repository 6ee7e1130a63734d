package migrate_test

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// testRollback: days later, from another machine; a label that was set meanwhile stays, and
// so does an expansion.
func testRollback(w *world) {
	w.disk("rolled", func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/note": "<&>"}
		pv.Labels = map[string]string{"zone": "a"}
	})
	claim, was := w.claim("rolled").UID, w.volume("rolled")
	w.came(w.operator(migrate.Options{}).apply("rolled"), migrate.Done, journal.Finished, "")
	w.change("rolled", func(pv *corev1.PersistentVolume) { pv.Labels["later"] = "yes" })
	p := w.operator(migrate.Options{}) // with a journal that is empty
	w.came(p.rollback("rolled"), migrate.Done, journal.Finished, "")
	was.Labels["later"] = "yes"
	w.isFlex(was, claim)
	if _, err := p.Reversible(w.t.Context(), []string{"rolled"}); err == nil || !strings.Contains(err.Error(), "has been taken back already") {
		w.t.Error(err)
	}
	if _, err := p.Reversible(w.t.Context(), []string{"missing"}); err == nil || !strings.Contains(err.Error(), "was not migrated") {
		w.t.Error(err)
	}
}

// testRollbackLive: pods of before have the old mount still.
func testRollbackLive(w *world) {
	w.live("back-live")
	claim, was := w.claim("back-live").UID, w.volume("back-live")
	p := w.operator(migrate.Options{})
	p.when = w.kubelet("node-1")
	w.came(p.apply("back-live"), migrate.Done, journal.Finished, "")
	r := w.came(p.rollback("back-live"), migrate.Done, journal.Finished, "")
	if r.TakenOver <= 0 {
		w.t.Errorf("%+v", r)
	}
	w.isFlex(was, claim)
}

// testRollbackRefused: what a pod needs to go on with a FlexVolume.
func testRollbackRefused(w *world) {
	w.live("back-no")
	claim, was := w.claim("back-no").UID, w.volume("back-no")
	p := w.operator(migrate.Options{})
	p.when = w.kubelet("node-1")
	w.came(p.apply("back-no"), migrate.Done, journal.Finished, "")
	documents := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	o, err := documents.Get(w.t.Context(), "node-1", metav1.GetOptions{})
	w.check(err)
	good := o.Data[bridgestatus.Key]
	put := func(text string) {
		o, err := documents.Get(w.t.Context(), "node-1", metav1.GetOptions{})
		w.check(err)
		o.Data[bridgestatus.Key] = text
		_, err = documents.Update(w.t.Context(), o, metav1.UpdateOptions{})
		w.check(err)
	}
	for text, want := range map[string]string{
		strings.Replace(good, `"flexDrivers":["example.com/disk"]`, `"flexDrivers":["example.com/other"]`, 1): "does not serve FlexVolume driver " + flexDriver,
		strings.Replace(good, bootID, "another", 1):                                                           "has said nothing since",
		"[": "does not say what it has",
	} {
		put(text)
		if text == good {
			w.t.Fatal("nothing is changed")
		}
		results := p.rollback("back-no")
		if len(results) != 1 || results[0].Outcome != migrate.Left || !strings.Contains(results[0].Why, want) {
			w.t.Errorf("%+v, want %q", results, want)
		}
		if unfinished, err := p.Resumable(w.t.Context(), nil); err != nil || slices.ContainsFunc(unfinished, func(r *journal.Record) bool { return r.Volume == "back-no" }) {
			w.t.Errorf("a rollback that was refused is unfinished: %v", err)
		}
		if w.volume("back-no").Spec.CSI == nil {
			w.t.Fatal("it was replaced")
		}
	}
	put(good)
	w.came(p.rollback("back-no"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
}

// testRollbackHalfWay: from each stage of a migration.
func testRollbackHalfWay(w *world) {
	for _, at := range []struct {
		name, verb, resource string
		after                bool
	}{
		{"half-retained", "delete", "persistentvolumes", false},
		{"half-deleting", "delete", "persistentvolumes", true},
		{"half-deleted", "create", "persistentvolumes", false},
		{"half-created", "create", "persistentvolumes", true},
		{"half-bound", "patch", "persistentvolumeclaims", true},
	} {
		w.disk(at.name, func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		})
		claim, was := w.claim(at.name).UID, w.volume(at.name)
		p := w.operator(migrate.Options{Accept: []string{"reclaim-policy"}})
		tasks := p.tasks(at.name)
		ctx, kill := context.WithCancel(w.t.Context())
		p.moment(at.verb, at.resource, at.after, kill)
		results, err := p.Apply(ctx, tasks)
		w.check(err)
		if results[0].Outcome != migrate.Interrupted {
			w.t.Errorf("%+v", results)
		}
		p = w.operatorAt(p.dir, migrate.Options{})
		w.came(p.rollback(at.name), migrate.Done, journal.Finished, "")
		w.isFlex(was, claim)
		p.Options.Accept = []string{"reclaim-policy"}
		w.came(p.apply(at.name), migrate.Done, journal.Finished, "")
		w.isCSI(at.name, claim)
	}
}

// serve has the bridge of a node serve another FlexVolume driver than before.
func (w *world) serve(node, flexDriver string) {
	w.t.Helper()
	maps := w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	o, err := maps.Get(w.t.Context(), node, metav1.GetOptions{})
	w.check(err)
	d, err := bridgestatus.DecodeNodeVolumes(o.Data[bridgestatus.Key])
	w.check(err)
	d.FlexDrivers = []string{flexDriver}
	o.Data[bridgestatus.Key], err = d.Encode()
	w.check(err)
	_, err = maps.Update(w.t.Context(), o, metav1.UpdateOptions{})
	w.check(err)
}

// testRefusedHalfWay: what was not finished is not finished after a rollback that
// was refused.
func testRefusedHalfWay(w *world) {
	w.live("half-no")
	claim := w.claim("half-no").UID
	p := w.operator(migrate.Options{})
	ctx, kill := context.WithCancel(w.t.Context())
	p.moment("create", "persistentvolumes", true, kill)
	_, err := p.Apply(ctx, p.tasks("half-no"))
	w.check(err)
	p = w.operatorAt(p.dir, migrate.Options{})
	w.serve("node-1", "example.com/other")
	results := p.rollback("half-no")
	if len(results) != 1 || results[0].Outcome != migrate.Left || !strings.Contains(results[0].Why, "does not serve FlexVolume driver") {
		w.t.Errorf("%+v", results)
	}
	w.serve("node-1", flexDriver)
	p.when = w.kubelet("node-1")
	w.came(p.resume("half-no"), migrate.Done, journal.Finished, "")
	w.isCSI("half-no", claim)
}

// testOfflineAfterLive: a rollback that was begun under pods and does not get on is
// gone on with when they have been stopped.
func testOfflineAfterLive(w *world) {
	w.disk("later-off")
	claim, was := w.claim("later-off").UID, w.volume("later-off")
	w.came(w.operator(migrate.Options{}).apply("later-off"), migrate.Done, journal.Finished, "")
	w.change("later-off", func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/keep") })
	p := w.operator(migrate.Options{Timeout: 2 * time.Second})
	w.came(p.rollback("later-off"), migrate.Unfinished, journal.Retained, "example.com/keep")
	w.change("later-off", func(pv *corev1.PersistentVolume) { pv.Finalizers = nil })
	w.pod("later-off", "", "later-off") // on a node it would be attached, by an external-attacher that is not here
	p.Options.Mode = journal.Offline
	w.came(p.rollback("later-off"), migrate.Unfinished, journal.Retained, "pod default/later-off uses it: stop it")
	w.end("later-off")
	p.Options.Timeout = 0
	w.came(p.rollback("later-off"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
}

// testNotServed: a FlexVolume that no bridge serves is one that no pod can have.
func testNotServed(w *world) {
	w.disk("unserved")
	claim, was := w.claim("unserved").UID, w.volume("unserved")
	p := w.operator(migrate.Options{Mode: journal.Offline})
	w.came(p.apply("unserved"), migrate.Done, journal.Finished, "")
	for _, node := range []string{"node-1", "node-2"} {
		w.bridge(node)
		w.serve(node, "example.com/other")
	}
	results := p.rollback("unserved")
	if len(results) != 1 || results[0].Outcome != migrate.Left || !strings.Contains(results[0].Why, "no bridge serves FlexVolume driver "+flexDriver) {
		w.t.Errorf("%+v", results)
	}
	for _, node := range []string{"node-1", "node-2"} {
		w.serve(node, flexDriver)
	}
	w.came(p.rollback("unserved"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
}

// testClockBehind: of two migrations the later one holds, also if it was begun by
// a clock that is behind; else who has the record of the first would take the
// volume, which is gone, for one that is finished.
func testClockBehind(w *world) {
	w.disk("clock")
	claim := w.claim("clock").UID
	ahead := w.operator(migrate.Options{})
	ahead.Now = func() time.Time { return time.Now().Add(time.Hour) }
	w.came(ahead.apply("clock"), migrate.Done, journal.Finished, "")
	w.came(ahead.rollback("clock"), migrate.Done, journal.Finished, "")
	p := w.operator(migrate.Options{})
	ctx, kill := context.WithCancel(w.t.Context())
	p.moment("create", "persistentvolumes", false, kill)
	_, err := p.Apply(ctx, p.tasks("clock"))
	w.check(err)
	w.came(w.operatorAt(ahead.dir, migrate.Options{}).resume("clock"), migrate.Done, journal.Finished, "")
	w.isCSI("clock", claim)
}

// testNoJournal: the volume itself says what it was.
func testNoJournal(w *world) {
	w.disk("no-journal")
	claim, was := w.claim("no-journal").UID, w.volume("no-journal")
	w.came(w.operator(migrate.Options{}).apply("no-journal"), migrate.Done, journal.Finished, "")
	w.check(w.Admin().CoreV1().ConfigMaps(migrate.Namespace).Delete(w.t.Context(), journal.ConfigMapName("no-journal"), metav1.DeleteOptions{}))
	w.came(w.operator(migrate.Options{}).rollback("no-journal"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
}

// testReattach: a VolumeAttachment that the control plane has made names the
// volume, and no controller could ever detach it again.
func testReattach(w *world) {
	w.disk("reattach")
	claim, was := w.claim("reattach").UID, w.volume("reattach")
	p := w.operator(migrate.Options{})
	w.came(p.apply("reattach"), migrate.Done, journal.Finished, "")
	pod := w.pod("reattach", "node-1", "reattach")
	name := objects.AttachmentName("vol-reattach", csiDriver, "node-1")
	attachments := w.Admin().StorageV1().VolumeAttachments()
	var before *storagev1.VolumeAttachment
	testenv.Eventually(w.t, "the control plane attaches it", func() bool {
		var err error
		before, err = attachments.Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil
	})
	if before.Spec.Source.PersistentVolumeName == nil {
		w.t.Fatalf("%+v", before.Spec)
	}
	attach := func() {
		o, err := attachments.Get(context.Background(), name, metav1.GetOptions{})
		w.check(err)
		o.Finalizers = []string{"external-attacher/" + csiDriver}
		o, err = attachments.Update(context.Background(), o, metav1.UpdateOptions{})
		w.check(err)
		o.Status.Attached = true
		_, err = attachments.UpdateStatus(context.Background(), o, metav1.UpdateOptions{})
		w.check(err)
	}
	attach()
	w.bridge("node-1", has("none"))
	p.when = func(e migrate.Event) {
		switch {
		case e.What != migrate.Waiting:
		case strings.Contains(e.Text, "is not attached yet"):
			attach()
		case strings.Contains(e.Text, "as a FlexVolume yet"):
			w.bridge("node-1", has("reattach", pod))
		}
	}
	w.came(p.rollback("reattach"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
	after, err := attachments.Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	if after.UID == before.UID || after.Spec.Source.PersistentVolumeName != nil || after.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle != "vol-reattach" || after.DeletionTimestamp != nil {
		w.t.Errorf("%+v", after)
	}
}

// testWithoutFinalizer: the VolumeAttachment of ceph-csi's RBD, which has no
// PUBLISH_UNPUBLISH_VOLUME, has no finalizer, so it goes whatever it names. One without a
// PersistentVolume would end ceph-csi.
func testWithoutFinalizer(w *world) {
	const driver = "ceph.rook.io/rook"
	w.FlexVolume("bare", driver, "ext4", map[string]string{"volumeID": "vol-bare"})
	claim, was := w.claim("bare").UID, w.volume("bare")
	p := w.operator(migrate.Options{})
	w.came(p.apply("bare"), migrate.Done, journal.Finished, "")
	pod := w.pod("bare", "node-1", "bare")
	name := objects.AttachmentName("vol-bare", rbdDriver, "node-1")
	attachments := w.Admin().StorageV1().VolumeAttachments()
	var before *storagev1.VolumeAttachment
	testenv.Eventually(w.t, "the control plane attaches it", func() bool {
		var err error
		before, err = attachments.Get(w.t.Context(), name, metav1.GetOptions{})
		return err == nil
	})
	before.Status.Attached = true
	before, err := attachments.UpdateStatus(w.t.Context(), before, metav1.UpdateOptions{})
	w.check(err)
	served := func(v bridgestatus.NodeVolume) bridgestatus.NodeVolume {
		v.FlexDriver, v.CSIDriver = driver, rbdDriver
		return v
	}
	w.bridge("node-1", served(has("none")))
	w.serve("node-1", driver)
	p.when = func(e migrate.Event) {
		switch {
		case e.What == migrate.Troubled:
			w.t.Errorf("%s", e.Text)
		case e.What == migrate.Waiting && strings.Contains(e.Text, "as a FlexVolume yet"):
			w.bridge("node-1", served(has("bare", pod)))
		}
	}
	w.came(p.rollback("bare"), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
	after, err := attachments.Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	if after.UID != before.UID || after.DeletionTimestamp != nil {
		w.t.Errorf("%+v", after)
	}
	w.serve("node-1", flexDriver)
}

// testKubeletRestart: after a rollback a kubelet that was restarted ended the process
// of a FUSE driver under the containers that had their volume from it.
func testKubeletRestart(w *world) {
	const driver, share = "example.com/process", "processes"
	w.FlexVolume(share, driver, "", map[string]string{"volumeID": share})
	claim, was := w.claim(share).UID, w.volume(share)
	p := w.operator(migrate.Options{})
	w.came(p.apply(share), migrate.Done, journal.Finished, "")
	pod := w.pod(share, "node-2", share)
	volume := bridgestatus.NodeVolume{PersistentVolume: share, FlexDriver: driver, CSIDriver: "share.csi.example.com", VolumeHandle: share, Pods: []bridgestatus.NodePod{{UID: string(pod.UID)}}}
	w.bridge("node-2", has("none"))
	w.serve("node-2", driver)
	results := p.rollback(share)
	if len(results) != 1 || results[0].Outcome != migrate.Left || !strings.Contains(results[0].Why, "--accept kubelet-restart") || w.volume(share).Spec.CSI == nil {
		w.t.Fatalf("%+v", results)
	}
	p.Options.Accept = []string{"kubelet-restart"}
	p.when = func(e migrate.Event) {
		if e.What == migrate.Waiting && strings.Contains(e.Text, "as a FlexVolume yet") {
			w.bridge("node-2", volume)
		}
	}
	w.came(p.rollback(share), migrate.Done, journal.Finished, "")
	w.isFlex(was, claim)
	w.serve("node-2", flexDriver)
}

// testAnotherCluster: the journal of a volume that was never here creates none.
func testAnotherCluster(w *world) {
	w.disk("elsewhere-run")
	p := w.operator(migrate.Options{})
	tasks := p.tasks("elsewhere-run")
	ctx, kill := context.WithCancel(w.t.Context())
	p.moment("create", "persistentvolumes", false, kill)
	results, err := p.Apply(ctx, tasks)
	w.check(err)
	w.came(results, migrate.Interrupted, journal.Deleted, "")
	w.unclaim("elsewhere-run")
	w.came(p.resume("elsewhere-run"), migrate.Unfinished, journal.Deleting, "is it the right one?")
	w.came(p.rollback("elsewhere-run"), migrate.Unfinished, journal.Deleting, "is it the right one?")
	if _, err := w.Admin().CoreV1().PersistentVolumes().Get(w.t.Context(), "elsewhere-run", metav1.GetOptions{}); err == nil {
		w.t.Error("it was created")
	}
	w.check(w.Admin().CoreV1().ConfigMaps(migrate.Namespace).Delete(w.t.Context(), journal.ConfigMapName("elsewhere-run"), metav1.DeleteOptions{}))
}
