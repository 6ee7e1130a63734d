package migrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// vendor is a FlexVolume driver of a vendor in kube-controller-manager. It says
// that it attaches, and writes down each call.
const vendor = `#!/bin/sh
echo "$@" >>%s
case $1 in
init) echo '{"status":"Success","capabilities":{"attach":true}}' ;;
attach) echo '{"status":"Success","device":"/dev/vendor"}' ;;
isattached) echo '{"status":"Success","attached":true}' ;;
detach) echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}' ;;
esac
`

// vendorDriver puts the vendor's driver into kube-controller-manager, and returns
// the file of its calls.
func (w *world) vendorDriver() (calls string) {
	w.t.Helper()
	calls = filepath.Join(w.t.TempDir(), "calls")
	dir := filepath.Join(w.PluginDir(), strings.ReplaceAll(flexDriver, "/", "~"))
	w.check(os.MkdirAll(dir, 0o755))
	w.check(os.WriteFile(dir+"/.new", fmt.Appendf(nil, vendor, calls), 0o755))
	w.check(os.Rename(dir+"/.new", dir+"/disk"))
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return calls
}

func (w *world) called(calls, call string) bool {
	w.t.Helper()
	text, err := os.ReadFile(calls)
	w.check(err)
	return slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool { return strings.HasPrefix(line, call+" ") })
}

// listed reports whether status.volumesAttached of a node has a disk.
func (w *world) listed(node, volume string) bool {
	w.t.Helper()
	n, err := w.Admin().CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
	w.check(err)
	return slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
		return string(a.Name) == flexDriver+"/"+volume
	})
}

// list writes status.volumesAttached of a node, as kube-controller-manager would.
func (w *world) list(node string, volumes ...string) {
	w.t.Helper()
	entries := []corev1.AttachedVolume{}
	for _, v := range volumes {
		entries = append(entries, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(flexDriver + "/" + v), DevicePath: "/dev/vendor"})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"volumesAttached": entries}})
	w.check(err)
	_, err = w.Admin().CoreV1().Nodes().Patch(context.Background(), node, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.check(err)
}

// restarted restarts kube-controller-manager, and leaves it time to detach.
func (w *world) restarted() {
	w.t.Helper()
	w.check(w.kcm.Restart())
	time.Sleep(5 * time.Second)
}

// TestVendor: a driver of a vendor with attach: true is in kube-controller-manager,
// and the nodes have the volumes from the bridge, which has attach: false.
func TestVendor(t *testing.T) {
	w := start(t)
	for _, test := range []struct {
		name string
		run  func(*world)
	}{
		{"Detached", testVendorDetaches},
		{"Stopped", testVendorStopped},
		{"Later", testVendorLater},
		{"Resumed", testVendorResumed},
		{"Explained", testExplained},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(w.with(t)) })
	}
}

// testVendorDetaches: when kube-controller-manager is restarted it detaches what
// no pod wants as a FlexVolume. So nothing is replaced under a pod while it has the
// volume attached, and the documented remedy lets it be replaced.
func testVendorDetaches(w *world) {
	calls := w.vendorDriver()
	w.live("vendor")
	claim := w.claim("vendor").UID
	testenv.Eventually(w.t, "kube-controller-manager attaches the volume", func() bool { return w.listed("node-1", "vendor") })
	p := w.operator(migrate.Options{})
	p.when = w.kubelet("node-1")
	plan, err := p.Planner.Plan(w.t.Context(), &migrate.Selection{Names: []string{"vendor"}})
	w.check(err)
	tasks, left := migrate.Choose(plan, p.Options)
	if len(left) != 1 || !strings.Contains(left[0].Why, "status.volumesAttached of node node-1 has it") {
		w.t.Errorf("plan: left %+v", left)
	}
	if _, err := p.Apply(w.t.Context(), tasks); err != nil {
		w.t.Error(err)
	}
	w.restarted()
	if w.called(calls, "detach") {
		w.t.Fatal("the vendor's driver has detached the volume under its pod")
	}
	says(w.t, w.one("vendor"), migrate.Offline, "volumes-attached", migrate.NotLive, "restarts")

	// Without the driver nothing is detached, and the entry stays: also over a
	// restart.
	w.check(os.RemoveAll(filepath.Join(w.PluginDir(), strings.ReplaceAll(flexDriver, "/", "~"))))
	w.stays("node-1", "vendor")
	w.restarted()
	w.stays("node-1", "vendor")
	w.kcm.Kill()
	w.list("node-1")
	w.check(w.kcm.Start())
	time.Sleep(5 * time.Second)
	if w.listed("node-1", "vendor") {
		w.t.Fatal("the entry has come back")
	}
	says(w.t, w.one("vendor"), migrate.Live, "volumes-attached", migrate.OK, "")
	w.came(p.apply("vendor"), migrate.Done, journal.Finished, "")
	w.isCSI("vendor", claim)
	w.restarted()
	if w.called(calls, "detach") {
		w.t.Error("the vendor's driver has detached the volume under its pod")
	}
}

// stays wants an entry to be there most of the time: kube-controller-manager
// removes it before it looks for the driver, and writes it again.
func (w *world) stays(node, volume string) {
	w.t.Helper()
	const looks = 200
	var seen int
	for range looks {
		if w.listed(node, volume) {
			seen++
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Logf("the entry was there at %d of %d looks", seen, looks)
	if seen == 0 {
		w.t.Error("kube-controller-manager without the driver has removed the entry")
	}
}

// testVendorStopped: where pods are stopped the run waits until the entry is removed,
// and for a while longer: it goes before the driver is called.
func testVendorStopped(w *world) {
	w.disk("vendor-stopped")
	pod := w.member("vendor-stopped")
	w.budget("vendor-stopped", 1)
	w.list("node-1", "vendor-stopped")
	claim := w.claim("vendor-stopped").UID
	p := w.operator(migrate.Options{Mode: journal.Rolling, Timeout: time.Minute})
	var waited bool
	var removed time.Time
	p.when = func(e migrate.Event) {
		switch {
		case e.What == migrate.Waiting && strings.Contains(e.Text, "status.volumesAttached of node node-1 has it"):
			if now := w.volumeOrNil("vendor-stopped"); now != nil {
				w.t.Errorf("it waits with volume %s", now.UID)
			}
			_, err := w.Admin().CoreV1().Pods("default").Get(context.Background(), pod.Name, metav1.GetOptions{})
			waited, removed = err != nil, time.Now()
			w.list("node-1")
		case e.Stage == journal.Created && e.What == migrate.Reached && time.Since(removed) < 10*time.Second:
			w.t.Errorf("created %s after the entry was removed", time.Since(removed))
		case strings.Contains(e.Text, "it does not exist yet"):
			w.successor("vendor-stopped")
		}
	}
	w.came(p.apply("vendor-stopped"), migrate.Done, journal.Finished, "")
	w.isCSI("vendor-stopped", claim)
	if !waited {
		w.t.Error("it did not wait for kube-controller-manager")
	}

	w.disk("vendor-offline")
	w.pod("vendor-offline", "node-1", "vendor-offline")
	w.list("node-1", "vendor-offline")
	p = w.operator(migrate.Options{Mode: journal.Offline, Timeout: 3 * time.Second})
	p.when = func(e migrate.Event) {
		if strings.Contains(e.Text, "pod default/vendor-offline uses it") {
			w.end("vendor-offline")
		}
	}
	w.came(p.apply("vendor-offline"), migrate.Unfinished, journal.Retained, "status.volumesAttached of node node-1 has it")
	w.list("node-1")
	p.Options.Timeout = 0
	w.came(p.resume("vendor-offline"), migrate.Done, journal.Finished, "")
}

// volumeOrNil returns nil where there is none, or it is being deleted.
func (w *world) volumeOrNil(name string) *corev1.PersistentVolume {
	pv, err := w.Admin().CoreV1().PersistentVolumes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil || pv.DeletionTimestamp != nil {
		return nil
	}
	return pv
}

// testVendorLater: the driver attaches the volume between the plan and the swap,
// to a node of its pod and to another one.
func testVendorLater(w *world) {
	for _, node := range []string{"node-1", "node-2"} {
		name := "later-" + node
		w.live(name)
		was := w.volume(name)
		p := w.operator(migrate.Options{})
		p.when = func(e migrate.Event) {
			if e.What == migrate.Reached && e.Stage == journal.Retained {
				w.list(node, name)
			}
		}
		w.came(p.apply(name), migrate.Unfinished, journal.Retained, "status.volumesAttached of node "+node+" has it")
		if now := w.volume(name); now.UID != was.UID || now.DeletionTimestamp != nil {
			w.t.Errorf("%+v", now)
		}
		p.when = w.kubelet("node-1")
		w.came(p.resume(name), migrate.Unfinished, journal.Retained, "status.volumesAttached of node "+node+" has it")
		w.list(node)
		w.came(p.resume(name), migrate.Done, journal.Finished, "")
	}
}

// testVendorResumed: the operator dies where there is no volume, and the driver is
// there when another one goes on: what there was is put back, since a FlexVolume
// that a pod wants is not detached.
func testVendorResumed(w *world) {
	w.live("vendor-resumed")
	claim, was := w.claim("vendor-resumed").UID, w.volume("vendor-resumed")
	p := w.operator(migrate.Options{})
	ctx, die := context.WithCancel(w.t.Context())
	tasks := p.tasks("vendor-resumed")
	p.moment("patch", "persistentvolumes", true, die)
	_, err := p.Apply(ctx, tasks)
	w.check(err)
	if pv := w.volumeOrNil("vendor-resumed"); pv != nil {
		w.t.Fatalf("%+v", pv)
	}
	w.list("node-1", "vendor-resumed")
	q := w.operatorAt(p.dir, migrate.Options{})
	w.came(q.resume("vendor-resumed"), migrate.PutBack, journal.Finished, "status.volumesAttached of node node-1 has it")
	w.isFlex(was, claim)
	w.list("node-1")
}

// testExplained: what flex2csi controller has attached is live, as it
// leaves alone what the control plane adopts. What the daemon of a node has
// attached explains nothing.
func testExplained(w *world) {
	w.disk("explained")
	pod := w.pod("explained", "node-1", "explained")
	w.bridge("node-1", has("explained", pod))
	w.attached("explained", "node-1", by(objects.AttachedByNode))
	w.list("node-1", "explained")
	says(w.t, w.one("explained"), migrate.Offline, "volumes-attached", migrate.NotLive, "node-1")
	name := objects.AttachmentName("vol-explained", csiDriver, "node-1")
	w.check(w.Admin().StorageV1().VolumeAttachments().Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	w.attached("explained", "node-1", by(objects.AttachedByController))
	says(w.t, w.one("explained"), migrate.Live, "volumes-attached", migrate.OK, "")
	w.list("node-1")
}

func by(owner string) func(*storagev1.VolumeAttachment) {
	return func(o *storagev1.VolumeAttachment) { o.Labels[objects.AttachedByLabel] = owner }
}
