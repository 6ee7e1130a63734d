package bridge

import (
	"cmp"
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

// AttacherSuffices is an error if the driver's volumes cannot be attached through
// the cluster: without the secrets that it wants the driver would do something else
// than it was configured for, or fail and not say why.
func (d *FlexDriver) AttacherSuffices() error {
	if !d.AttachSecretsHere {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "volumes of driver %s are attached by the external-attacher, which cannot read what secrets.controllerPublish names: put it into a Secret of Kubernetes, and name that (secrets.controllerPublish.secretRef)", d.Name)
}

// attachInCluster asks for the attachment of a volume and waits for it.
func (b *Bridge) attachInCluster(s *setup, by string) error {
	d, v, r := s.d, s.v, s.v.record
	if err := d.AttacherSuffices(); err != nil {
		return err
	}
	if r.Attach == volstate.Undoing {
		// What was asked to go may still be seen for a while. It has to be gone
		// before it can be asked for anew.
		if err := b.deleteAttachment(d, v, v.patience(d.Timeouts.Attach)); err != nil {
			return remember(r, unsettled{err})
		}
		forgetAttachment(r)
	}
	r.NodeID, r.Object = s.f.NodeID, attachment.Name(v.key.Handle, v.key.Driver, b.NodeName)
	if r.Attachment == "" {
		r.Attachment = by
	}
	return b.askCluster(d, v, s.want.Pod, v.patience(d.Timeouts.Attach), s.awaits && r.Attach == volstate.None || awaited(r))
}

// awaited reports whether somebody else attaches the volume of a record.
func awaited(r *volstate.Record) bool { return r.Foreign && r.Attachment == byControlPlane }

// askCluster asks for the attachment that a record names, or only waits for it.
func (b *Bridge) askCluster(d *FlexDriver, v *volume, pod csivol.Pod, timeout time.Duration, awaits bool) error {
	r := v.record
	before := r.Attach
	// Whose it will be is known when it is there; until then it may be ours.
	r.Attach, r.Foreign = volstate.Doing, awaits
	if err := b.save(v); err != nil {
		return err
	}
	ask := d.Attacher.Attach
	if awaits {
		ask = d.Attacher.Await
	}
	var got csivol.Attached
	err := v.rpc(timeout, func(ctx context.Context) (err error) {
		got, err = ask(ctx, b.attachmentOf(d, r, pod))
		return err
	})
	if errors.Is(err, csivol.ErrNotBegun) && before == volstate.None { // it speaks of this request only
		forgetAttachment(r)
		return remember(r, err)
	}
	if err != nil {
		return remember(r, unsettled{err})
	}
	v.lent = got.Lent
	r.Attach, r.PublishContext, r.Foreign = volstate.Done, got.PublishContext, awaits || !got.Ours
	if got.Lent && !holds(r) {
		r.Attach = volstate.Doing // until stillAttached: if that is not reached, the next call asks again
	}
	return nil
}

// holds reports whether what is published keeps the kubelet's CSI plugin, and so the
// control plane, from letting go of a volume. A call that has failed half-way may
// have published nothing.
func holds(r *volstate.Record) bool {
	for _, t := range r.Targets {
		if t.Publish == volstate.Done {
			return true
		}
	}
	return false
}

// attachmentOf is what a record says of an attachment. It is never read-only:
// spec.flexVolume.readOnly has no effect on what the kubelet asks of mount.
func (b *Bridge) attachmentOf(d *FlexDriver, r *volstate.Record, pod csivol.Pod) *csivol.Attachment {
	return &csivol.Attachment{
		Driver: r.Driver, Handle: r.Handle, Node: b.NodeName, FlexDriver: r.FlexDriver, Name: r.Name, Pod: pod,
		Context: r.Context, FSType: r.FSType, MountFlags: r.KnownFlags(), AccessModes: csivol.Attachable(r.AccessModes, r.AccessMode),
		Secret: d.AttachSecret, KubeletHolds: b.there(b.volDataPath(r.Key())),
	}
}

// defaultDetachWait is short: the volume is not in use any more, and the record
// says what is left to do.
const defaultDetachWait = 10 * time.Second

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
	if err := b.deleteAttachment(d, v, v.patience(cmp.Or(b.DetachWait, defaultDetachWait))); err != nil {
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
	d, err := b.undoer(v.record)
	if err != nil {
		return err
	}
	if err := b.detachFrom(d, v, csivol.Secrets{}); err != nil {
		return err
	}
	b.growUnused(d, v)
	return nil
}
