package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// The cluster attaches by itself once it has been asked to: a request that
// nobody waits for any more goes on, and so does a detach. So the record says
// the name of the VolumeAttachment before it is made, and who gives up waiting
// undoes nothing: the next call waits for the same, and if none comes Reconcile
// takes it back. See docs/adr/0013-attach-through-the-cluster.md.

// unsettled marks an error after which what was asked for goes on.
type unsettled struct{ error }

// Unwrap is for errors.As.
func (u unsettled) Unwrap() error { return u.error }

// attachInCluster asks for the attachment of a volume and waits for it.
func (b *Bridge) attachInCluster(s *setup, by string) error {
	d, v, r := s.d, s.v, s.v.record
	timeout := v.patience(d.Timeouts.Attach)
	if r.Attach == volstate.Undoing {
		// What was asked to go may still be seen for a while. It has to be gone
		// before it can be asked for anew.
		if err := b.deleteAttachment(d, v, timeout); err != nil {
			return remember(r, unsettled{err})
		}
		forgetAttachment(r)
	}
	if r.Attach == volstate.None {
		r.Foreign = s.awaits
	}
	r.Attach, r.NodeID, r.Object = volstate.Doing, s.f.NodeID, attachment.Name(v.key.Handle, v.key.Driver, b.NodeName)
	if r.Attachment == "" {
		r.Attachment = by
	}
	if err := b.save(v); err != nil {
		return err
	}
	return b.awaitAttachment(d, v, s.want.Pod, timeout)
}

// awaitAttachment asks for an attachment that the record says is asked for.
func (b *Bridge) awaitAttachment(d *FlexDriver, v *volume, pod csivol.Pod, timeout time.Duration) error {
	r := v.record
	awaits := r.Foreign && r.Attachment == byControlPlane
	var got csivol.Attached
	err := v.rpc(timeout, func(ctx context.Context) (err error) {
		if awaits {
			got, err = d.Attacher.Await(ctx, b.attachmentOf(d, r, pod))
		} else {
			got, err = d.Attacher.Attach(ctx, b.attachmentOf(d, r, pod))
		}
		return err
	})
	switch {
	case errors.Is(err, csivol.ErrNotBegun):
		forgetAttachment(r)
		return remember(r, err)
	case err != nil:
		return remember(r, unsettled{err})
	}
	r.Attach, r.PublishContext = volstate.Done, got.PublishContext
	r.Foreign = awaits || !got.Ours
	return nil
}

// attachmentOf is what a record says of an attachment.
func (b *Bridge) attachmentOf(d *FlexDriver, r *volstate.Record, pod csivol.Pod) *csivol.Attachment {
	modes := r.AccessModes
	if len(modes) == 0 {
		modes = []csivol.AccessMode{modeOf(r.AccessMode)}
	}
	return &csivol.Attachment{
		Driver: r.Driver, Handle: r.Handle, Node: b.NodeName, FlexDriver: r.FlexDriver, Name: r.Name, Pod: pod,
		Context: r.Context, FSType: r.FSType, MountFlags: r.KnownFlags(), AccessModes: modes, ReadOnly: r.AttachReadOnly,
		Secret: d.AttachSecret,
	}
}

// patience is how long a call may wait for what goes on without it: its caller
// is to hear what it waits for, rather than leave.
func (v *volume) patience(timeout time.Duration) time.Duration {
	const toAnswer, least = 3 * time.Second, time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	until := v.current.until.Load()
	if until == 0 {
		return timeout
	}
	return min(timeout, max(least, time.Until(time.Unix(0, until))-toAnswer))
}

// detachWait is how long the last unmount waits for a detach. It does not need
// it: the volume is not in use any more, and the record says what is left to do.
const detachWait = 10 * time.Second

// detachSoon is detachFrom for a volume that nobody has any more. A pod's end
// does not wait for a detach that goes on without it, or cannot begin since the
// API server is away.
func (b *Bridge) detachSoon(d *FlexDriver, v *volume, s csivol.Secrets) error {
	r := v.record
	if r.Object == "" || r.Foreign {
		return b.detachFrom(d, v, s)
	}
	begun, err := b.beginDetach(v)
	if err != nil || !begun {
		return err
	}
	if err := b.deleteAttachment(d, v, detachWait); err != nil {
		v.log.Warn("the volume is not detached yet; that goes on without its pod", "volumeAttachment", r.Object, "error", err)
		b.doLater(r, operation{command: detachCommand}, "detach it", b.finishDetach)
		return nil
	}
	forgetAttachment(r)
	return nil
}

// deleteAttachment is the request alone.
func (b *Bridge) deleteAttachment(d *FlexDriver, v *volume, timeout time.Duration) error {
	if d.Attacher == nil {
		return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is attached by VolumeAttachment %s, and this daemon has no access to the API server any more: give it --in-cluster or --kubeconfig", v.key, v.record.Object)
	}
	return v.rpc(timeout, func(ctx context.Context) error {
		return d.Attacher.Detach(ctx, b.attachmentOf(d, v.record, csivol.Pod{}))
	})
}

// detachCommand names the operation that completes a detach; no callout does.
const detachCommand flex.Command = "detach later"

// detachPending reports that nothing but a detach through the cluster is left to
// do for a volume.
func detachPending(r *volstate.Record) bool {
	return r.Attach == volstate.Undoing && r.Object != "" && r.Stage == volstate.None && r.Device == "" && len(r.Targets) == 0
}

// finishDetach completes what a tear-down has left.
func (b *Bridge) finishDetach(v *volume) error {
	if !detachPending(v.record) {
		return nil // somebody has mounted it, or it is done
	}
	d, err := b.driverOf(v.record)
	if err != nil {
		return err
	}
	return b.detachFrom(d, v, csivol.Secrets{})
}

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
