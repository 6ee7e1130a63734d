package bridge

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// mountDevice leaves a marker at the device mount path: without a mount point there
// the kubelet would never call unmountdevice. The volume is attached and staged by
// mount: only that tells for which pod, and so whether the pod may have it.
func (b *Bridge) mountDevice(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return err
	}
	return b.do(ctx, want.Key(), operation{command: c.Command, dir: c.Dir}, func(v *volume) error {
		if other := v.record.Device; other != "" && other != c.Dir {
			return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolumes %s and %s are the same volume %s, and node %s has it as %s: with attach: true one of them can be on a node; delete the pods of %s on this node first", want.Name, v.record.Name, v.key, b.NodeName, v.record.Name, v.record.Name)
		}
		if err := b.describe(d, v, want); err != nil {
			return err
		}
		if err := b.reachable(c.Dir); err != nil {
			return err
		}
		takeBack(v.record)
		v.record.Device = c.Dir
		if err := b.save(v); err != nil {
			return err
		}
		return b.Mounts.Marker(v.ctx, c.Dir)
	})
}

// unmountDevice unstages. The kubelet's own check that no pod has the volume
// any more does not see through the marker; ours has to.
func (b *Bridge) unmountDevice(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.find(c.Dir)
	if !ok {
		return b.Mounts.Unmount(ctx, c.Dir)
	}
	return b.do(ctx, key, operation{command: c.Command, dir: c.Dir}, func(v *volume) error {
		d, err := b.undoerOf(d, v.record)
		if err != nil {
			return err
		}
		v.next = b.fate(v, c.Dir).Next != ""
		return b.releaseDevice(d, v, c.Dir)
	})
}

func (b *Bridge) releaseDevice(d *FlexDriver, v *volume, dir string) error {
	if err := b.releaseUnseen(d, v); err != nil {
		return err
	}
	if n := len(v.record.Targets); n > 0 {
		return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still mounted for %d pods of this node; unmount comes before unmountdevice", v.key, n)
	}
	who := ours
	if v.record.TakenOver { // as the last unmount has seen
		who = unclear
	}
	left, err := b.leaveTo(v, who)
	if err != nil {
		return err
	}
	if leftUnclear(v.record) {
		// Success would have kube-controller-manager detach it under the stage.
		return remember(v.record, flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and it is not clear whether the kubelet's CSI plugin has it there, too (%s, or a pod that is about to have it): unmountdevice succeeds when the plugin has it for a pod or has unstaged it, or when flex2csi has, %v after this began", v.key, v.record.StagingPath, b.volDataPath(v.key), b.grace()))
	}
	if !left {
		if err := b.unstage(d, v); err != nil {
			return err
		}
	}
	if err := b.Mounts.Unmount(v.ctx, dir); err != nil {
		return err
	}
	v.record.Device = ""
	if left {
		return nil
	}
	if v.record.Attachment == byControlPlane && v.record.Attach == volstate.Done && !v.record.Foreign {
		return nil // detach will come
	}
	return b.detachSoon(d, v, csivol.Secrets{})
}

// releaseForgotten does what unmountdevice would do for a volume of which
// nothing is at the device mount path, as after a reboot: the kubelet does not
// call there (pkg/volume/flexvolume/detacher.go, UnmountDevice).
func (b *Bridge) releaseForgotten(d *FlexDriver, v *volume) error {
	if v.record.Device == "" {
		return nil
	}
	mounted, err := b.Mounts.Mounted(v.record.Device)
	if err != nil || mounted {
		return err
	}
	return b.releaseDevice(d, v, v.record.Device)
}

// releaseUnseen undoes targets that the kubelet does not know of, since their
// mount failed: it calls unmountdevice when no pod has the volume any more.
func (b *Bridge) releaseUnseen(d *FlexDriver, v *volume) error {
	for dir, t := range v.record.Targets {
		mounted, err := b.Mounts.Mounted(dir)
		if err != nil {
			return err
		}
		if mounted || t.Bound {
			continue
		}
		if err := b.release(d, v, csivol.Secrets{}, dir); err != nil {
			return err
		}
	}
	return nil
}
