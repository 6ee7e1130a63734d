package bridge

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// DefaultGrace is how long something may be left half-done before it is undone
// because nobody asks for it any more. It exceeds the kubelet's longest pause
// between two tries (2 min 2 s) and its wait for a pod's volumes (2 min 3 s).
const DefaultGrace = 5 * time.Minute

func (b *Bridge) grace() time.Duration {
	if b.Grace <= 0 {
		return DefaultGrace
	}
	return b.Grace
}

// reconcileCommand names the operation of the reconciler; no callout does.
const reconcileCommand flex.Command = "reconcile"

// Reconcile looks once at all volumes. What nobody wants any more is undone:
// targets of pods that are gone, and operations that were given up half-way.
// What pods ought to have and have not is mended or reported. It does not wait
// for operations that it starts; ctx bounds the looking.
func (b *Bridge) Reconcile(ctx context.Context) {
	for _, r := range b.Records() {
		if ctx.Err() != nil {
			return
		}
		b.noticeStuck(r)
		if b.busy(r.Key()) {
			continue
		}
		if detachPending(r) {
			b.doLater(r, operation{command: detachCommand}, "detach it", b.finishDetach)
			continue
		}
		if b.unwanted(r) {
			b.doLater(r, operation{command: reconcileCommand}, "undo what nobody wants any more", b.undoUnwanted)
			continue
		}
		if b.attachmentAmiss(r) {
			b.doLater(r, operation{command: reattachCommand}, "attach it again", b.reattach)
		}
		if a := b.examine(r); !a.noted(r) || !a.none() {
			b.doLater(r, operation{command: reconcileCommand}, "replace dead mounts", b.treat)
			continue
		}
		b.republish(r)
		b.measure(r)
	}
}

// FinishDetaches goes on with the detaches that an earlier process has left.
func (b *Bridge) FinishDetaches() {
	for _, r := range b.Records() {
		if detachPending(r) {
			b.doLater(r, operation{command: detachCommand}, "detach it", b.finishDetach)
		}
	}
}

// busy reports whether an operation is under way on a volume.
func (b *Bridge) busy(key csivol.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := b.volumes[key]
	return v != nil && len(v.ops) > 0
}

func (b *Bridge) unwanted(r *volstate.Record) bool {
	for dir, t := range r.Targets {
		if b.targetUnwanted(r, t, dir) {
			return true
		}
	}
	if leftUnclear(r) {
		return b.decided(r)
	}
	return len(r.Targets) == 0 && b.volumeUnwanted(r)
}

// targetUnwanted: the pod's directory is gone, or nobody came back for a
// set-up or tear-down that was not finished. What is bound to the directory is the
// pod's, whatever the record says: the kubelet may have seen it.
//
// A pod that is gone before it got anything keeps others from the volume if that
// is being attached here by the cluster: it does not wait for the grace period.
func (b *Bridge) targetUnwanted(r *volstate.Record, t *volstate.Target, dir string) bool {
	if r.Object != "" && t.Publish == volstate.None && b.podsKnown(dir) && b.podGone(dir) {
		return true
	}
	if time.Since(t.Since) < b.grace() || !b.podsKnown(dir) {
		return false
	}
	if b.podGone(dir) {
		return true
	}
	mounted, err := b.Mounts.Mounted(dir)
	if err == nil && mounted {
		return t.Private == "" && !t.Bound // by a driver that was given up, or is not done
	}
	return err == nil && !(t.Bound && b.there(dir))
}

// volumeUnwanted: no pod has it, and kube-controller-manager is not about to
// detach it. A marker at the device mount path is no sign of an owner: a kubelet
// that was restarted after the last unmount has forgotten it
// (kubernetes/kubernetes#85476), and one that saw mountdevice fail has, too. If
// it has not, the next mount stages the volume again.
func (b *Bridge) volumeUnwanted(r *volstate.Record) bool {
	if time.Since(r.Changed) < b.grace() {
		return false
	}
	if r.Device != "" || r.Stage != volstate.None {
		return true
	}
	return r.Attachment != byControlPlane || r.Attach == volstate.Undoing
}

// podsKnown reports whether there is a directory of pods to look at. Where it
// is not mounted (yet) all pods seem gone.
func (b *Bridge) podsKnown(dir string) bool {
	place, err := kubeletdir.Parse(dir)
	return err != nil || place.PodUID == "" || b.there(filepath.Join(place.Root, "pods"))
}

// podGone reports that the kubelet has removed the pod's directory.
func (b *Bridge) podGone(dir string) bool {
	place, err := kubeletdir.Parse(dir)
	if err != nil || place.PodUID == "" {
		return false
	}
	there, err := b.dirs().Exists(filepath.Join(place.Root, "pods", place.PodUID))
	return err == nil && !there
}

// undoUnwanted looks again, now that nothing else works on the volume.
func (b *Bridge) undoUnwanted(v *volume) error {
	d, err := b.undoer(v.record)
	if err != nil {
		return err
	}
	var failed []error // one pod's does not keep the others'
	for dir, t := range v.record.Targets {
		if !b.targetUnwanted(v.record, t, dir) {
			continue
		}
		v.log.Info("undoing a target that nobody wants any more", "dir", dir, "publish", string(t.Publish))
		failed = append(failed, b.release(d, v, csivol.Secrets{}, dir))
	}
	if err := errors.Join(failed...); err != nil || len(v.record.Targets) > 0 {
		return err
	}
	if leftUnclear(v.record) {
		if !b.decided(v.record) {
			return nil
		}
		return b.endUnclear(d, v)
	}
	if !b.volumeUnwanted(v.record) {
		return nil
	}
	v.log.Info("undoing a volume that nobody wants any more")
	if device := v.record.Device; device != "" {
		if err := b.releaseDevice(d, v, device); err != nil {
			return err
		}
		_ = b.dirs().Remove(device) // the kubelet, which made it, has forgotten it
		return nil
	}
	if err := b.unstage(d, v); err != nil {
		return err
	}
	return b.detachFrom(d, v, csivol.Secrets{})
}
