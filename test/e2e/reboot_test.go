package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/node"
)

func migrateReboots() []scenario {
	return []scenario{
		{"migrate-rebooted", "power is cut while volumes are migrated and their pods have both mounts: pods come back on CSI volumes, and one that was put back on the bridge", migrateRebooted},
	}
}

func reboots() []scenario {
	return []scenario{
		{"rebooted", "power is cut: pods come back with what they had synced; what was deleted meanwhile goes, what was forced leaves nothing", rebooted},
	}
}

func rebooted(t *T) {
	w := t.witness(t.volume(disk(), "w-disk"), t.volume(attached(), "w-attached"), t.volume(share(), "w-share", inline), t.localVolume(local()))
	deleted := t.start("deleted", t.volume(disk(), "a").at("/a"), t.volume(attached(), "b").at("/b"))
	forced := t.start("forced", t.volume(disk(), "c").at("/c"), t.volume(share(), "d", inline).at("/d"))
	daemon, _ := t.daemon()
	boot, err := node.BootID()
	t.must(err)

	t.must(t.node.PowerOff())
	pods, now := t.client.CoreV1().Pods(t.Namespace), int64(0)
	t.must(pods.Delete(t.ctx(), deleted.Name, metav1.DeleteOptions{}))
	t.must(pods.Delete(t.ctx(), forced.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	t.must(t.node.Reboot(t.ctx()))

	t.waitRestarted(daemon, "serve")
	t.must(errors.Join(t.rolledOut(t.ctx(), "csi"), t.rolledOut(t.ctx(), installed)))
	t.waitRestarted(w.pod, "main")
	t.waitGone(deleted)
	w.look()
	t.wantNoRecordOf(boot)
	after := t.start("after", t.volume(disk(), "e").at("/e"))
	t.delete(after, w.pod)
}

// migrateRebooted: after a reboot a pod has what its PersistentVolume says.
func migrateRebooted(t *T) {
	disk, kept, share := t.volume(disk(), "disk"), t.volume(attached(), "kept"), t.volume(share(), "share")
	all := []*writer{t.lastingWriter("disk", disk), t.lastingWriter("kept", kept), t.lastingWriter("share", share)}
	wasDisk, wasKept, wasShare := t.persistentVolume(disk), t.persistentVolume(kept), t.persistentVolume(share)
	t.toCSI("--namespace", t.Namespace, "--width", "3")
	t.toFlex(kept.name)
	for _, w := range all {
		w.writes()
	}
	daemon, _ := t.daemon()

	t.must(t.node.PowerOff())
	t.must(t.node.Reboot(t.ctx()))

	t.waitRestarted(daemon, "serve")
	t.must(errors.Join(t.rolledOut(t.ctx(), "csi"), t.rolledOut(t.ctx(), installed)))
	for _, w := range all {
		if w.v == kept {
			t.backOrDeleted(w)
		} else {
			t.waitRestarted(w.pod, "main")
		}
		t.wantMounts(w.v, w.pod, w.v == kept, w.v != kept)
	}
	t.wantCSI(disk, wasDisk)
	t.wantFlex(kept, wasKept)
	t.wantCSI(share, wasShare)
	for _, w := range all {
		w.writes()
		t.delete(w.pod)
		t.waitIdle(w.v)
	}
}

// backOrDeleted: a pod from before a rollback comes back after a reboot, unless the
// kubelet's CSI plugin has released the volume by then. Then the message says to delete it,
// and the next pod starts.
func (t *T) backOrDeleted(w *writer) {
	t.Helper()
	err := retry(t.patience, func() error {
		if err := t.wasRestarted(w.pod, "main"); err == nil || strings.Contains(t.eventsOf(w.pod.Name), "delete the pod") {
			return nil
		}
		return errors.New("it has not been, and no event says to delete it")
	})
	t.must(err)
	if t.wasRestarted(w.pod, "main") == nil {
		return
	}
	t.delete(w.pod)
	*w = *w.next(w.pod.Name + "-next")
	t.note("pod %s had to be deleted", w.pod.Name)
}

// wantNoRecordOf waits until there are no records of another boot than this one,
// under which nothing can be mounted any more. The kubelet may have let a pod go
// before the daemon has looked at its volumes.
func (t *T) wantNoRecordOf(boot string) {
	t.Helper()
	t.wait("the records of the last boot are gone", func() error {
		files, err := filepath.Glob("/var/lib/flex2csi/*.json")
		t.must(err)
		if len(files) == 0 {
			return errors.New("there are no records, though a pod has volumes")
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			t.must(ignoreGone(err))
			if strings.Contains(string(text), boot) {
				return fmt.Errorf("%s is of the last boot: %s", file, text)
			}
		}
		return nil
	})
}
