package bridge

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// The callouts that there are with attach:true. On a node they come from a
// kubelet that attaches by itself (enableControllerAttachDetach: false);
// kube-controller-manager's go to flex2csi serve --controller.

// attach is the callout of that name: kube-controller-manager wants the
// volume on a node.
func (b *Bridge) attach(ctx context.Context, d *FlexDriver, c *flex.Call) (string, error) {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return "", err
	}
	if err := b.requireThisNode(c.NodeName); err != nil {
		return "", err
	}
	err = b.do(ctx, want.Key(), operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		s, err := b.setup(d, v, want)
		if err != nil {
			return err
		}
		if v.record.Attach != volstate.Done {
			if err := d.RequirePod(v.ctx, want, c.NodeName); err != nil {
				return err
			}
		}
		if err := b.describe(d, v, want); err != nil {
			return err
		}
		return b.attachTo(s, byControlPlane)
	})
	return DeviceName(want), err
}

// RequirePod is an error unless MayAttach allows it.
func (d *FlexDriver) RequirePod(ctx context.Context, v *csivol.Volume, node string) error {
	if d.MayAttach == nil {
		return nil
	}
	return d.MayAttach(ctx, v, node)
}

// requireThisNode: a node's daemon attaches and detaches for its own node only.
func (b *Bridge) requireThisNode(node string) error {
	if node == b.NodeName {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "flex2csi on node %s cannot attach to node %s, nor detach from it: it is the daemon of its own node only, and for kube-controller-manager there is flex2csi serve --controller", b.NodeName, node)
}

// DeviceName is what the kubelet passes around as the device. It is no path,
// on purpose: the kubelet would look whether the device is in use.
func DeviceName(v *csivol.Volume) string { return attachment.DevicePrefix + v.Handle }

// isAttached never says no: the kubelet would take that for detached, drop
// the volume and attach it again. What is not known is a Failure.
func (b *Bridge) isAttached(ctx context.Context, d *FlexDriver, c *flex.Call) (bool, error) {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return false, err
	}
	var attached bool
	err = b.do(ctx, want.Key(), operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		s, err := b.setup(d, v, want)
		if err != nil {
			return err
		}
		route, err := d.route(s.f, s.policy)
		attached = err == nil && (route == noRoute || v.record.Attach == volstate.Done && c.NodeName == b.NodeName)
		return err
	})
	if err == nil && !attached {
		err = flex.Errorf(flex.CodeUnavailable, "flex2csi has no record that volume %s is attached to node %s", want.Key(), c.NodeName)
	}
	return attached, err
}

// waitForAttach has nothing to wait for: attach returned when it was done.
func (b *Bridge) waitForAttach(ctx context.Context, d *FlexDriver, c *flex.Call) (string, error) {
	if len(c.Options.User) == 0 {
		return c.Device, nil // rebuilt after a restart of the kubelet
	}
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return "", err
	}
	return DeviceName(want), nil
}

// detach is the callout of that name. It has the name of the PersistentVolume
// and no options. What is still staged on this node is not detached: data
// that was not written back would be lost.
func (b *Bridge) detach(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	if err := b.requireThisNode(c.NodeName); err != nil {
		return err // what is attached elsewhere this process does not know
	}
	key, ok := b.named(d, c.VolumeName)
	if !ok {
		return nil
	}
	return b.do(ctx, key, operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		d, err := b.undoerOf(d, v.record)
		if err != nil {
			return err
		}
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
