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

// wantsAttach reports whether ControllerPublishVolume has to be called.
func (d *FlexDriver) wantsAttach(f csivol.Features) (bool, error) {
	switch {
	case d.Attach == AttachNone:
		return false, nil
	case f.Attach:
		return true, nil
	case d.Attach == AttachController:
		return false, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through its controller, which does not offer PUBLISH_UNPUBLISH_VOLUME or cannot be reached; look at controllerEndpoint", d.Name)
	}
	return false, nil
}

// attachTo sees to it that the volume is attached to this node, and to the
// publish context that the node service wants to see. A volume that the
// control plane has attached is asked for once more: the call is idempotent,
// and its answer is the context.
func (b *Bridge) attachTo(d *FlexDriver, v *volume, want *csivol.Volume, f csivol.Features, by string) error {
	r := v.record
	if r.Attach == volstate.Done && !r.PublishContextIncomplete() {
		return nil
	}
	if attach, err := d.wantsAttach(f); err != nil || !attach {
		return err
	}
	if r.Attach == volstate.Done {
		return b.attachAgain(d, v, want)
	}
	before := r.Attach
	r.Attach, r.NodeID = volstate.Doing, f.NodeID
	if r.Attachment == "" {
		r.Attachment = by
	}
	if err := b.save(v); err != nil {
		return err
	}
	published, err := b.controllerPublish(d, v, want)
	if err != nil {
		if before == volstate.None && csivol.FailedPrecondition(err) {
			// Another node has it. To negate what did not begin would be to trust
			// that the driver looks at the node, before it detaches.
			r.Attach, r.Attachment, r.NodeID = volstate.None, "", ""
			return remember(r, flex.Errorf(flex.CodeFailedPrecondition, "%w; most likely another node has the volume, and it can come here when that has detached it", err))
		}
		if csivol.Final(err) && r.Stage == volstate.None && len(publishedPods(r)) == 0 {
			return errors.Join(remember(r, err), b.detachFrom(d, v, want.Secrets))
		}
		return remember(r, err)
	}
	r.Attach, r.PublishContext = volstate.Done, published
	return nil
}

// controllerPublish is the RPC alone.
func (b *Bridge) controllerPublish(d *FlexDriver, v *volume, want *csivol.Volume) (published map[string]string, err error) {
	r := v.record
	err = v.rpc(d.Timeouts.Attach, func(ctx context.Context) (err error) {
		published, err = d.Service.ControllerPublish(ctx, csivol.AttachRequest{
			Handle:     v.key.Handle,
			NodeID:     r.NodeID,
			Capability: capability(r),
			Context:    r.Context,
			Secrets:    want.Secrets.ControllerPublish,
		})
		return err
	})
	return published, err
}

// detachFrom takes the volume off this node, unless the kubelet's own CSI
// plugin has it now.
func (b *Bridge) detachFrom(d *FlexDriver, v *volume, s csivol.Secrets) error {
	r := v.record
	if r.Attach == volstate.None {
		return nil
	}
	over, err := b.takenOver(v) // asked here, too: not all drivers stage
	if err != nil {
		return err
	}
	if !over && !r.TakenOver {
		r.Attach = volstate.Undoing
		if err := b.save(v); err != nil {
			return err
		}
		secrets, err := detachSecrets(d, s)
		if err != nil {
			return remember(r, err)
		}
		err = v.rpc(d.Timeouts.Detach, func(ctx context.Context) error {
			return d.Service.ControllerUnpublish(ctx, v.key.Handle, r.NodeID, secrets)
		})
		if err != nil && !csivol.NotFound(err) {
			return remember(r, err)
		}
	}
	r.Attach, r.Attachment, r.NodeID, r.PublishContext = volstate.None, "", "", nil
	return nil
}

// detachSecrets are those of ControllerPublishVolume, which the specification
// wants again. Where they came from the Flex secret they are gone by now.
func detachSecrets(d *FlexDriver, s csivol.Secrets) (map[string]flex.Secret, error) {
	if s.ControllerPublish != nil || d.DetachSecrets == nil {
		return s.ControllerPublish, nil
	}
	return d.DetachSecrets()
}

// attach is the callout of that name: kube-controller-manager wants the
// volume on a node.
func (b *Bridge) attach(ctx context.Context, d *FlexDriver, c *flex.Call) (string, error) {
	want, err := d.Map(c.Options)
	if err != nil {
		return "", err
	}
	if err := b.requireThisNode(c.NodeName); err != nil {
		return "", err
	}
	err = b.do(ctx, want.Key(), operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		f, err := v.features(d)
		if err != nil {
			return err
		}
		if err := b.describe(v, want); err != nil {
			return err
		}
		return b.attachTo(d, v, want, f, byControlPlane)
	})
	return deviceName(want), err
}

// requireThisNode: without the API server only this node's CSI id is known.
func (b *Bridge) requireThisNode(node string) error {
	if node == b.NodeName {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "flex2csi on node %s cannot attach to node %s: it knows the CSI node id of its own node only", b.NodeName, node)
}

// deviceName is what the kubelet passes around as the device. It is no path,
// on purpose: the kubelet would look whether the device is in use.
func deviceName(v *csivol.Volume) string { return "csi:" + v.Handle }

// isAttached never says no: the kubelet would take that for detached, drop
// the volume and attach it again. What is not known is a Failure.
func (b *Bridge) isAttached(ctx context.Context, d *FlexDriver, c *flex.Call) (bool, error) {
	want, err := d.Map(c.Options)
	if err != nil {
		return false, err
	}
	var attached bool
	err = b.do(ctx, want.Key(), operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		f, err := v.features(d)
		if err != nil {
			return err
		}
		needed, err := d.wantsAttach(f)
		attached = err == nil && (!needed || v.record.Attach == volstate.Done && c.NodeName == b.NodeName)
		return err
	})
	if err == nil && !attached {
		err = flex.Errorf(flex.CodeUnavailable, "flex2csi has no record that volume %s is attached to node %s", want.Key(), c.NodeName)
	}
	return attached, err
}

// waitForAttach has nothing to wait for: attach returned when it was done.
func (b *Bridge) waitForAttach(_ context.Context, d *FlexDriver, c *flex.Call) (string, error) {
	if len(c.Options.User) == 0 {
		return c.Device, nil // rebuilt after a restart of the kubelet
	}
	want, err := d.Map(c.Options)
	if err != nil {
		return "", err
	}
	return deviceName(want), nil
}

// detach is the callout of that name. It has the name of the PersistentVolume
// and no options. What is still staged on this node is not detached: data
// that was not written back would be lost.
func (b *Bridge) detach(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.named(d, c.VolumeName)
	if !ok {
		return nil
	}
	if err := errors.Join(d.serves(key), b.requireThisNode(c.NodeName)); err != nil {
		return err
	}
	return b.do(ctx, key, operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		if err := b.releaseForgotten(d, v); err != nil {
			return err
		}
		if v.record.Stage != volstate.None || len(v.record.Targets) > 0 {
			return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still in use on node %s and is not detached; it will be when its last pod is gone", v.key, c.NodeName)
		}
		return b.detachFrom(d, v, csivol.Secrets{})
	})
}

// named finds a volume by the name of its PersistentVolume.
func (b *Bridge) named(d *FlexDriver, name string) (csivol.Key, bool) {
	for _, r := range b.Records() {
		if r.FlexDriver == d.Name && r.Name == name {
			return r.Key(), true
		}
	}
	return csivol.Key{}, false
}
