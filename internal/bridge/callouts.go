package bridge

import (
	"context"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Each callout says which volume it is for and what it wants of it. What has to be
// done is the planner's to say (package lifecycle).

// Callouts returns those of one FlexVolume driver, for flex.Run.
func (b *Bridge) Callouts(name string) (*flex.Driver, error) {
	d := b.Drivers.First(name)
	if d == nil {
		return b.removed(name)
	}
	return &flex.Driver{Handle: callouts{b, d}.handle}, nil
}

// removed returns the callouts of a driver that the configuration does not have.
func (b *Bridge) removed(name string) (*flex.Driver, error) {
	missing := b.Configured(name)
	if b.Removed == nil {
		return nil, missing
	}
	on := callouts{b, &FlexDriver{Name: name}}
	return &flex.Driver{Handle: func(ctx context.Context, c *flex.Call) (flex.DriverStatus, error) {
		switch c.Command {
		case flex.CommandDetach:
			return on.handle(ctx, c)
		case flex.CommandUnmount, flex.CommandUnmountDevice:
			// What no record knows may be of any driver. Nothing being there is what unmount
			// is for, and may be called again.
			_, known := b.registry.find(c.Dir)
			if !known {
				mounted, err := b.Mounts.Mounted(c.Dir)
				known = err == nil && !mounted
			}
			if known {
				return on.handle(ctx, c)
			}
		}
		return flex.DriverStatus{}, missing
	}}, nil
}

// callouts are those of one FlexVolume driver.
type callouts struct {
	bridge *Bridge
	// driver is the first of the name. What it does not serve is undone by that of the
	// record (undoerOf).
	driver *FlexDriver
}

func (on callouts) handle(ctx context.Context, c *flex.Call) (answer flex.DriverStatus, err error) {
	answer = flex.Success()
	switch c.Command {
	case flex.CommandAttach:
		answer.Device, err = on.attach(ctx, c)
	case flex.CommandIsAttached:
		answer.Attached, err = new(true), on.requireAttached(ctx, c)
	case flex.CommandWaitForAttach:
		answer.Device, err = on.waitForAttach(ctx, c)
	case flex.CommandDetach:
		err = on.detach(ctx, c)
	case flex.CommandMountDevice:
		err = on.mountDevice(ctx, c)
	case flex.CommandUnmountDevice:
		err = on.unmountDevice(ctx, c)
	case flex.CommandMount:
		err = on.mount(ctx, c)
	case flex.CommandUnmount:
		err = on.unmount(ctx, c)
	case flex.CommandExpandFS:
		err = on.expandFS(ctx, c)
	default:
		// expandvolume is never called: the expand controller finds no FlexVolume driver
		// (pkg/controller/volume/expand/expand_controller.go, Kubernetes v1.37.1). A Success, or
		// "Not supported", would say that the volume has its new size.
		err = flex.Errorf(flex.CodeFailedPrecondition, "%s does nothing: expandfs expands the volume and its filesystem", c.Command)
	}
	return answer, err
}

// volume returns the volume that the options of a call name, and its driver.
func (on callouts) volume(ctx context.Context, o flex.Options) (*FlexDriver, *csivol.Volume, error) {
	return on.bridge.Drivers.Volume(ctx, on.driver.Name, o)
}

// attach, like detach, comes from a kubelet that attaches by itself
// (enableControllerAttachDetach: false); kube-controller-manager's go to flex2csi
// controller.
func (on callouts) attach(ctx context.Context, c *flex.Call) (string, error) {
	d, want, err := on.volume(ctx, c.Options)
	if err != nil {
		return "", err
	}
	if err := on.requireThisNode(c.NodeName); err != nil {
		return "", err
	}
	err = on.bridge.bringTo(ctx, want.Key(), d, operation{command: c.Command, dir: c.NodeName}, lifecycle.Wanted{Goal: lifecycle.Attach, Volume: want})
	return DeviceName(want), err
}

// requireThisNode: a node's daemon attaches and detaches for its own node only.
func (on callouts) requireThisNode(node string) error {
	if node == on.bridge.NodeName {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "flex2csi on node %s cannot attach to node %s, nor detach from it: it is the daemon of its own node only, and for kube-controller-manager there is flex2csi controller", on.bridge.NodeName, node)
}

// DeviceName is what the kubelet passes around as the device. It is no path,
// on purpose: the kubelet would look whether the device is in use.
func DeviceName(v *csivol.Volume) string { return objects.DevicePrefix + v.Handle }

// requireAttached answers isattached, never with no: the kubelet would take that for
// detached, drop the volume and attach it again. What is not known is a Failure.
func (on callouts) requireAttached(ctx context.Context, c *flex.Call) error {
	d, want, err := on.volume(ctx, c.Options)
	if err != nil {
		return err
	}
	var attached bool
	err = on.bridge.inTurn(ctx, want.Key(), operation{command: c.Command, dir: c.NodeName}, func(v *volume) error {
		f, err := v.features(d)
		if err != nil {
			return err
		}
		policy, err := d.policy(v.ctx)
		if err != nil {
			return err
		}
		route, err := d.route(f, policy)
		attached = err == nil && (route == lifecycle.NoAttach || (v.record.Attach == volstate.Done && c.NodeName == on.bridge.NodeName))
		return err
	})
	if err == nil && !attached {
		err = flex.Errorf(flex.CodeUnavailable, "flex2csi has no record that volume %s is attached to node %s", want.Key(), c.NodeName)
	}
	return err
}

// waitForAttach has nothing to wait for: attach returned when it was done.
func (on callouts) waitForAttach(ctx context.Context, c *flex.Call) (string, error) {
	if len(c.Options.User) == 0 {
		return c.Device, nil // rebuilt after a restart of the kubelet
	}
	_, want, err := on.volume(ctx, c.Options)
	if err != nil {
		return "", err
	}
	return DeviceName(want), nil
}

// detach has the name of the PersistentVolume and no options.
func (on callouts) detach(ctx context.Context, c *flex.Call) error {
	if err := on.requireThisNode(c.NodeName); err != nil {
		return err // what is attached elsewhere this process does not know
	}
	key, ok := on.named(c.VolumeName)
	if !ok {
		return on.detachLost(ctx, c.VolumeName)
	}
	return on.bridge.bringTo(ctx, key, on.driver, operation{command: c.Command, dir: c.NodeName}, lifecycle.Wanted{Goal: lifecycle.Detach})
}

// named finds a volume by the name of its PersistentVolume.
func (on callouts) named(name string) (csivol.Key, bool) {
	for _, r := range on.bridge.Records() {
		if r.FlexDriver == on.driver.Name && r.Name == name {
			return r.Key(), true
		}
	}
	return csivol.Key{}, false
}

func (on callouts) mountDevice(ctx context.Context, c *flex.Call) error {
	d, want, err := on.volume(ctx, c.Options)
	if err != nil {
		return err
	}
	return on.bridge.bringTo(ctx, want.Key(), d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.MountDevice, Dir: c.Dir, Volume: want})
}

func (on callouts) unmountDevice(ctx context.Context, c *flex.Call) error {
	key, ok := on.bridge.registry.find(c.Dir)
	if !ok { // or it was staged before the marker was in its record
		key, ok = on.named(filepath.Base(c.Dir))
	}
	if !ok {
		return on.unmountLostDevice(ctx, c)
	}
	return on.bridge.bringTo(ctx, key, on.driver, operationOf(c), lifecycle.Wanted{Goal: lifecycle.UnmountDevice, Dir: c.Dir})
}

func (on callouts) mount(ctx context.Context, c *flex.Call) error {
	d, want, err := on.volume(ctx, c.Options)
	if err != nil {
		return err
	}
	return on.bridge.bringTo(ctx, want.Key(), d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.Mount, Dir: c.Dir, Volume: want})
}

func (on callouts) unmount(ctx context.Context, c *flex.Call) error {
	key, ok := on.bridge.registry.find(c.Dir)
	if !ok {
		return on.bridge.tidy(ctx, c.Dir)
	}
	return on.bridge.bringTo(ctx, key, on.driver, operationOf(c), lifecycle.Wanted{Goal: lifecycle.Unmount, Dir: c.Dir})
}

// expandFS does both halves of an expansion: Kubernetes calls nothing else.
func (on callouts) expandFS(ctx context.Context, c *flex.Call) error {
	key, ok := on.bridge.registry.find(c.Dir)
	if !ok {
		return flex.Errorf(flex.CodeFailedPrecondition, "flex2csi has no volume mounted at %s, so it cannot be expanded there", c.Dir)
	}
	if c.NewSize <= 0 || c.NewSize < c.OldSize {
		return flex.Errorf(flex.CodeInvalidArgument, "the new size (%d bytes) is smaller than the old one (%d bytes); a volume never shrinks", c.NewSize, c.OldSize)
	}
	d, want, err := on.volume(ctx, c.Options)
	if err != nil {
		return err
	}
	if err := d.serves(key); err != nil {
		return err
	}
	return on.bridge.bringTo(ctx, key, d, operationOf(c), lifecycle.Wanted{Goal: lifecycle.Expand, Dir: c.Dir, Volume: want, Size: c.NewSize, OldSize: c.OldSize})
}

func operationOf(c *flex.Call) operation {
	return operation{command: c.Command, dir: c.Dir, size: c.NewSize}
}

// completeCommand names the operation that completes a pending unmount. No callout has
// this name.
const completeCommand = flex.Command(lifecycle.CompleteUnmount)

// CompleteUnmount completes a pending unmount: a directory was unmounted while this
// process was not running. It does nothing if the pending unmount was completed
// meanwhile, or if the directory was mounted again.
func (b *Bridge) CompleteUnmount(ctx context.Context, dir string) error {
	key, ok := b.registry.find(dir)
	if !ok {
		if pending, err := b.pendingUnmount(dir); err != nil || !pending {
			return err
		}
		if mounted, err := b.Mounts.Mounted(dir); err != nil || mounted {
			return err // the kubelet has no Success yet (rule not-unmounted)
		}
		return b.tidy(ctx, dir)
	}
	if b.registry.busy(key) {
		return nil // later, or by what is under way: no queue behind a driver that hangs
	}
	return b.bringTo(ctx, key, nil, operation{command: completeCommand, dir: dir}, lifecycle.Wanted{Goal: lifecycle.CompleteUnmount, Dir: dir})
}
