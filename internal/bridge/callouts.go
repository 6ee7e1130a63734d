package bridge

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Each callout says which volume it is for and what it wants of it. What has to be
// done is the planner's to say (package lifecycle).

// attach, like detach, comes from a kubelet that attaches by itself
// (enableControllerAttachDetach: false); kube-controller-manager's go to flex2csi
// controller.
func (b *Bridge) attach(ctx context.Context, d *FlexDriver, c *flex.Call) (string, error) {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return "", err
	}
	if err := b.requireThisNode(c.NodeName); err != nil {
		return "", err
	}
	err = b.bringTo(ctx, want.Key(), d, operation{command: c.Command, dir: c.NodeName}, lifecycle.Wanted{Goal: lifecycle.Attach, Volume: want})
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
	return flex.Errorf(flex.CodeFailedPrecondition, "flex2csi on node %s cannot attach to node %s, nor detach from it: it is the daemon of its own node only, and for kube-controller-manager there is flex2csi controller", b.NodeName, node)
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
	err = b.inTurn(ctx, want.Key(), operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		f, err := v.features(d)
		if err != nil {
			return err
		}
		policy, err := d.policy(v.ctx)
		if err != nil {
			return err
		}
		route, err := d.route(f, policy)
		attached = err == nil && (route == lifecycle.NoRoute || v.record.Attach == volstate.Done && c.NodeName == b.NodeName)
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

// detach has the name of the PersistentVolume and no options.
func (b *Bridge) detach(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	if err := b.requireThisNode(c.NodeName); err != nil {
		return err // what is attached elsewhere this process does not know
	}
	key, ok := b.named(d, c.VolumeName)
	if !ok {
		return nil
	}
	return b.bringTo(ctx, key, d, operation{command: c.Command, dir: c.NodeName}, lifecycle.Wanted{Goal: lifecycle.Detach})
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

func (b *Bridge) mountDevice(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return err
	}
	return b.bringTo(ctx, want.Key(), d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.MountDevice, Dir: c.Dir, Volume: want})
}

func (b *Bridge) unmountDevice(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.find(c.Dir)
	if !ok {
		b.noteMarker(c.Dir, true)
		return b.Mounts.Unmount(ctx, c.Dir)
	}
	return b.bringTo(ctx, key, d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.UnmountDevice, Dir: c.Dir})
}

func (b *Bridge) mount(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return err
	}
	return b.bringTo(ctx, want.Key(), d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.Mount, Dir: c.Dir, Volume: want})
}

func (b *Bridge) unmount(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.find(c.Dir)
	if !ok {
		return b.tidy(ctx, c.Dir)
	}
	return b.bringTo(ctx, key, d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.Unmount, Dir: c.Dir})
}

// tidy unmounts what no record knows: never mounted, or the record was lost.
func (b *Bridge) tidy(ctx context.Context, dir string) error {
	if err := b.Mounts.Unmount(ctx, dir); err != nil {
		return err
	}
	// What is not a pod's directory has nothing private.
	if private, err := kubeletdir.PrivateTarget(dir); err == nil {
		if err := b.Mounts.Unmount(ctx, private); err != nil {
			return err
		}
		kubeletdir.RemovePrivate(private, b.dirs().Remove)
	}
	b.forgetLost(dir)
	return b.forgetPendingUnmount(dir)
}

// expandFS does both halves of an expansion: Kubernetes calls nothing else.
func (b *Bridge) expandFS(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.find(c.Dir)
	if !ok {
		return flex.Errorf(flex.CodeFailedPrecondition, "flex2csi has no volume mounted at %s, so it cannot be expanded there", c.Dir)
	}
	if err := d.serves(key); err != nil {
		return err
	}
	if c.NewSize <= 0 || c.NewSize < c.OldSize {
		return flex.Errorf(flex.CodeInvalidArgument, "the new size (%d bytes) is smaller than the old one (%d bytes); a volume never shrinks", c.NewSize, c.OldSize)
	}
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return err
	}
	return b.bringTo(ctx, key, d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.Expand, Dir: c.Dir, Volume: want, Size: c.NewSize, OldSize: c.OldSize})
}

// expandVolume is never called: the expand controller finds no FlexVolume driver
// (pkg/controller/volume/expand/expand_controller.go, Kubernetes v1.37.1). A Success, or
// "Not supported", would say that the volume has its new size.
func expandVolume(context.Context, *flex.Call) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "expandvolume does nothing: expandfs expands the volume and its filesystem")
}

func operationOf(c *flex.Call) operation {
	return operation{command: c.Command, dir: c.Dir, size: c.NewSize}
}

// completeCommand names the operation that completes a pending unmount. No callout has
// this name. It is in the status on the socket, so it stays as it is.
const completeCommand flex.Command = "bury"

// CompleteUnmount completes a pending unmount: a directory was unmounted while this
// process was not running. It does nothing if the pending unmount was completed
// meanwhile, or if the directory was mounted again.
func (b *Bridge) CompleteUnmount(ctx context.Context, dir string) error {
	key, ok := b.find(dir)
	if !ok {
		if pending, err := b.pendingUnmount(dir); err != nil || !pending {
			return err
		}
		if mounted, err := b.Mounts.Mounted(dir); err != nil || mounted {
			return err // the kubelet has no Success yet (rule not-unmounted)
		}
		return b.tidy(ctx, dir)
	}
	if b.busy(key) {
		return nil // later, or by what is under way: no queue behind a driver that hangs
	}
	return b.bringTo(ctx, key, nil, operation{command: completeCommand, dir: dir}, lifecycle.Wanted{Goal: lifecycle.CompleteUnmount, Dir: dir})
}

// pendingUnmount reports whether dir has one.
func (b *Bridge) pendingUnmount(dir string) (bool, error) {
	if b.PendingUnmounts == nil {
		return false, nil
	}
	return b.PendingUnmounts.Has(dir)
}

// forgetPendingUnmount is part of a complete unmount: a pending unmount that outlived it
// would take the next mount at dir away.
func (b *Bridge) forgetPendingUnmount(dir string) error {
	if b.PendingUnmounts == nil {
		return nil
	}
	return b.PendingUnmounts.Remove(dir)
}
