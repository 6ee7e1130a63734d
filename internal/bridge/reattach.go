package bridge

import (
	"maps"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Others can delete an attachment while pods have the volume: a person, or the
// control plane, when the last pod goes that has the same volume through a CSI
// PersistentVolume. Nobody but its user sees that, so the reconciler looks.

const (
	reattachCommand flex.Command = "attach again"
	// reattachWait is short: an unmount waits meanwhile. Reconcile comes back.
	reattachWait = 10 * time.Second
)

// attachmentLost reports whether an attachment is gone that a record says is
// there. What is not known is not lost.
func (b *Bridge) attachmentLost(r *volstate.Record) bool {
	d := b.Drivers[r.FlexDriver]
	if r.Object == "" || r.Attach != volstate.Done || d == nil || d.Attacher == nil {
		return false
	}
	lost, err := d.Attacher.Lost(b.attachmentOf(d, r, csivol.Pod{}))
	return err == nil && lost
}

// attachmentAmiss reports whether what pods have is not known to be attached.
func (b *Bridge) attachmentAmiss(r *volstate.Record) bool {
	if r.Stage == volstate.None && len(publishedPods(r)) == 0 {
		return false
	}
	inDoubt := r.Object != "" && r.Attach == volstate.Doing && len(publishedPods(r)) > 0
	return inDoubt || b.attachmentLost(r)
}

// reattach asks for an attachment again that pods need.
func (b *Bridge) reattach(v *volume) error {
	r := v.record
	if !b.attachmentAmiss(r) {
		return nil
	}
	d, err := b.driverOf(r)
	if err != nil || d.Attacher == nil {
		return err
	}
	if r.Attach == volstate.Done {
		v.log.Warn("the attachment of a volume is gone while pods have it", "volumeAttachment", r.Object)
		b.notifyPods(r, "VolumeAttachmentLost", "VolumeAttachment %s of volume %s was deleted, or is not attached any more, while the volume is in use on this node; flex2csi asks for it again", r.Object, r.Key())
	}
	if r.Incomplete() && !awaited(r) {
		return errIncomplete(r)
	}
	before := r.PublishContext
	if err := b.askCluster(d, v, csivol.Pod{}, reattachWait, awaited(r)); err != nil {
		return err
	}
	if r.Attach == volstate.Done { // else it is only lent, and this comes again
		v.log.Info("the volume is attached again", "volumeAttachment", r.Object)
	}
	if r.Stage == volstate.Done && !maps.Equal(before, r.PublishContext) {
		b.notifyPods(r, "VolumeAttachmentChanged", "volume %s is attached again, and not as before: what is mounted may not work any more; delete the pods that have it on this node", r.Key())
	}
	return nil
}
