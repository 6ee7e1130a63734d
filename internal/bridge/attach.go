package bridge

import (
	"context"
	"errors"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// byControlPlane is the Attachment of a volume that attach, a callout of its
// own, has attached, and detach will detach.
const byControlPlane = "control plane"

// byNode is that of a volume which mount attached.
const byNode = "node"

// A route is how a volume is attached.
type route int

const (
	noRoute      route = iota
	byController       // ControllerPublishVolume, from here
	byCluster          // a VolumeAttachment
)

// route returns that of the configuration. An attachment that has been begun is
// completed the way that it was begun.
func (s *setup) route() (route, error) {
	chosen, err := s.d.route(s.f, s.policy)
	r := s.v.record
	if err != nil || chosen == noRoute || r.Attach == volstate.None || (r.Object != "") == (chosen == byCluster) {
		return chosen, err
	}
	if r.Object != "" && s.d.Attacher != nil {
		return byCluster, nil
	}
	if r.Object == "" && s.f.Attach {
		return byController, nil
	}
	return noRoute, flex.Errorf(flex.CodeFailedPrecondition, "volume %s is attached, or half so, in another way than driver %s is configured to attach now (attach, controllerEndpoint); put that back until the volume's pods on this node are gone", s.v.key, s.d.Name)
}

// route returns how volumes are to be attached.
func (d *FlexDriver) route(f csivol.Features, p Policy) (route, error) {
	switch {
	case d.Attach == AttachNone:
		return noRoute, nil
	case d.Attach == AttachVA && d.Attacher != nil && p.Attach == NeedNoAttach:
		return noRoute, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through VolumeAttachments, and the CSIDriver object %s says attachRequired: false: nobody would work them off; set attach: Auto", d.Name, d.CSIDriver)
	case d.Attach == AttachVA && d.Attacher != nil:
		return byCluster, nil
	case d.Attach == AttachVA:
		return noRoute, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through VolumeAttachments, and this daemon has no access to the API server: give it --in-cluster or --kubeconfig", d.Name)
	case f.Attach:
		return byController, nil
	case d.Attach == AttachController:
		return noRoute, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through its controller, which does not offer PUBLISH_UNPUBLISH_VOLUME or cannot be reached; look at controllerEndpoint", d.Name)
	case d.Attacher != nil && (p.Attach == NeedAttach || p.Attach == NeedByController && f.Controller):
		return byCluster, nil
	}
	return noRoute, nil
}

// attachTo sees to it that the volume is attached to this node, and to the
// publish context that the node service wants to see. A volume that the
// control plane has attached is asked for once more: the call is idempotent,
// and its answer is the context.
func (b *Bridge) attachTo(s *setup, by string) error {
	r := s.v.record
	if r.Attach == volstate.Done && !r.PublishContextIncomplete() && !b.attachmentLost(r) {
		return nil
	}
	switch route, err := s.route(); {
	case err != nil || route == noRoute:
		return err
	case route == byCluster:
		return b.attachInCluster(s, by)
	case r.Attach == volstate.Done:
		return b.attachAgain(s)
	}
	return b.attachByController(s, by)
}

func (b *Bridge) attachByController(s *setup, by string) error {
	d, v, r := s.d, s.v, s.v.record
	before := r.Attach
	r.Attach, r.NodeID = volstate.Doing, s.f.NodeID
	if r.Attachment == "" {
		r.Attachment = by
	}
	if err := b.save(v); err != nil {
		return err
	}
	published, err := b.controllerPublish(s)
	if err != nil {
		if before == volstate.None && csivol.FailedPrecondition(err) {
			// Another node has it. To negate what did not begin would be to trust
			// that the driver looks at the node, before it detaches.
			forgetAttachment(r)
			return remember(r, flex.Errorf(flex.CodeFailedPrecondition, "%w; most likely another node has the volume, and it can come here when that has detached it", err))
		}
		if csivol.Final(err) && r.Stage == volstate.None && len(publishedPods(r)) == 0 {
			return errors.Join(remember(r, err), b.detachFrom(d, v, s.want.Secrets))
		}
		return remember(r, err)
	}
	r.Attach, r.PublishContext = volstate.Done, published
	return nil
}

// forgetAttachment leaves nothing of an attachment in the record.
func forgetAttachment(r *volstate.Record) {
	r.Attach, r.Attachment, r.Object, r.Foreign, r.NodeID, r.PublishContext = volstate.None, "", "", false, "", nil
}

// controllerPublish is the RPC alone.
func (b *Bridge) controllerPublish(s *setup) (published map[string]string, err error) {
	r := s.v.record
	secrets := s.want.Secrets.ControllerPublish
	if s.d.AttachSecret != nil { // read when it is needed, and not with each call
		if secrets, err = s.d.AttachSecrets(s.v.ctx); err != nil {
			return nil, err
		}
	}
	err = s.v.rpc(s.d.Timeouts.Attach, func(ctx context.Context) (err error) {
		published, err = s.d.Service.ControllerPublish(ctx, csivol.AttachRequest{
			Handle:     s.v.key.Handle,
			NodeID:     r.NodeID,
			Capability: capability(r),
			Context:    r.Context,
			Secrets:    secrets,
		})
		return err
	})
	return published, err
}

// detachFrom takes the volume off this node, unless the kubelet's own CSI
// plugin has it now, or it was not us who attached it. It is done the way that
// it was attached, whatever the configuration has become.
func (b *Bridge) detachFrom(d *FlexDriver, v *volume, s csivol.Secrets) error {
	begun, err := b.beginDetach(v)
	if err != nil || !begun {
		return err
	}
	r := v.record
	if r.Object != "" {
		err = b.deleteAttachment(d, v, d.Timeouts.Detach)
	} else {
		err = b.controllerUnpublish(d, v, s)
	}
	if err != nil {
		return remember(r, err)
	}
	forgetAttachment(r)
	return nil
}

// beginDetach writes down that the volume is being detached, or that it is
// attached no more as far as we are concerned.
func (b *Bridge) beginDetach(v *volume) (begun bool, err error) {
	r := v.record
	if r.Attach == volstate.None {
		return false, nil
	}
	over, err := b.takenOver(v) // asked here, too: not all drivers stage
	if err != nil {
		return false, err
	}
	if over || r.TakenOver || r.Foreign {
		forgetAttachment(r)
		return false, nil
	}
	r.Attach = volstate.Undoing
	return true, b.save(v)
}

func (b *Bridge) controllerUnpublish(d *FlexDriver, v *volume, s csivol.Secrets) error {
	secrets, err := detachSecrets(v.ctx, d, s)
	if err != nil {
		return err
	}
	err = v.rpc(d.Timeouts.Detach, func(ctx context.Context) error {
		return d.Service.ControllerUnpublish(ctx, v.key.Handle, v.record.NodeID, secrets)
	})
	if csivol.NotFound(err) {
		return nil
	}
	return err
}

// detachSecrets are those of ControllerPublishVolume, which the specification
// wants again. Where they came from the Flex secret they are gone by now.
func detachSecrets(ctx context.Context, d *FlexDriver, s csivol.Secrets) (map[string]flex.Secret, error) {
	if s.ControllerPublish != nil || d.AttachSecrets == nil {
		return s.ControllerPublish, nil
	}
	return d.AttachSecrets(ctx)
}
