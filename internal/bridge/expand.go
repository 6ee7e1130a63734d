package bridge

import (
	"context"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

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
	return b.do(ctx, key, operation{command: c.Command, dir: c.Dir, size: c.NewSize}, func(v *volume) error {
		return b.expand(d, v, c)
	})
}

// expandVolume, which nobody calls, grows the volume and not the filesystem.
func (b *Bridge) expandVolume(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return err
	}
	return b.do(ctx, want.Key(), operation{command: c.Command, dir: c.Dir, size: c.NewSize}, func(v *volume) error {
		f, err := v.features(d)
		if err != nil {
			return err
		}
		if !f.ControllerExpand {
			return flex.Errorf(flex.CodeFailedPrecondition, "driver %s cannot expand a volume, or its controller cannot be reached; look at controllerEndpoint", d.Name)
		}
		if err := b.describe(d, v, want); err != nil {
			return err
		}
		if err := d.expandSecrets(v.ctx, &want.Secrets); err != nil {
			return err
		}
		_, err = b.controllerExpand(d, v, want.Secrets, c.NewSize)
		return err
	})
}

func (b *Bridge) expand(d *FlexDriver, v *volume, c *flex.Call) error {
	r := v.record
	t := r.Targets[c.Dir]
	if t == nil || t.ReadOnly {
		return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is not mounted for writing at %s; a read-only mount is not expanded", v.key, c.Dir)
	}
	if r.Expand == volstate.Done && r.ExpandSize >= c.NewSize {
		return nil // by another pod of this node
	}
	f, err := v.features(d)
	if err != nil {
		return err
	}
	if !f.ControllerExpand && !f.NodeExpand {
		return remember(r, b.expandNothing(d, v, t, c))
	}
	want, err := d.Map(v.ctx, c.Options)
	if err != nil {
		return err
	}
	if err := d.expandSecrets(v.ctx, &want.Secrets); err != nil {
		return err
	}
	r.Complete(want.Context, want.MountFlags)
	r.Expand, r.ExpandSize = volstate.Doing, c.NewSize
	if err := b.save(v); err != nil {
		return err
	}
	if err := b.expandBoth(d, v, f, want.Secrets, t, c); err != nil {
		return remember(r, explainExpand(err))
	}
	r.Expand = volstate.Done
	return nil
}

func (d *FlexDriver) expandSecrets(ctx context.Context, s *csivol.Secrets) error {
	if d.ExpandSecrets == nil {
		return nil
	}
	return d.ExpandSecrets(ctx, s)
}

func (b *Bridge) expandBoth(d *FlexDriver, v *volume, f csivol.Features, s csivol.Secrets, t *volstate.Target, c *flex.Call) error {
	onNode := f.NodeExpand
	if f.ControllerExpand {
		required, err := b.controllerExpand(d, v, s, c.NewSize)
		if err != nil {
			return err
		}
		onNode = onNode && required
	}
	if !onNode {
		return nil
	}
	err := v.rpc(d.Timeouts.Expand, func(ctx context.Context) error {
		return d.Service.NodeExpand(ctx, csivol.ExpandRequest{
			Handle:      v.key.Handle,
			VolumePath:  target(t, c.Dir),
			StagingPath: v.record.StagingPath,
			Size:        c.NewSize,
			OnNodeOnly:  !f.ControllerExpand,
			Capability:  capability(v.record),
			Secrets:     s.NodeExpand,
		})
	})
	if err == nil && !f.ControllerExpand {
		err = b.requireGrown(d, v, t, c)
	}
	return err
}

func (b *Bridge) controllerExpand(d *FlexDriver, v *volume, s csivol.Secrets, size int64) (onNode bool, err error) {
	err = v.rpc(d.Timeouts.Expand, func(ctx context.Context) error {
		onNode, err = d.Service.ControllerExpand(ctx, csivol.ExpandRequest{
			Handle:     v.key.Handle,
			Size:       size,
			Capability: capability(v.record),
			Secrets:    s.ControllerExpand,
		})
		return err
	})
	return onNode, err
}

// growWait is how long a pod's end may take longer because its volume has to grow.
const growWait = 10 * time.Second

// growUnused grows a volume that could not be grown as long as pods had it: some
// drivers only do so while nobody uses it, and the kubelet never calls for that.
// Without it the next pod would not start either, since expandfs comes when its
// volume is staged. If it fails here, expandfs of the next pod says so.
func (b *Bridge) growUnused(d *FlexDriver, v *volume) {
	r := v.record
	if r.Expand != volstate.Doing || r.Stage != volstate.None || r.Attach == volstate.Undoing || r.TakenOver {
		return
	}
	f, err := v.features(d)
	if err != nil || !f.ControllerExpand {
		return
	}
	var s csivol.Secrets
	if err = d.expandSecrets(v.ctx, &s); err == nil {
		err = v.rpc(v.patience(growWait), func(ctx context.Context) error {
			_, err := d.Service.ControllerExpand(ctx, csivol.ExpandRequest{
				Handle: v.key.Handle, Size: r.ExpandSize, Capability: capability(r), Secrets: s.ControllerExpand,
			})
			return err
		})
	}
	if err != nil {
		v.log.Warn("the volume could not be expanded while nobody uses it either", "bytes", r.ExpandSize, "error", err)
		return
	}
	v.log.Info("expanded the volume, which nobody uses now", "bytes", r.ExpandSize)
	r.Expand = volstate.Done
}

// explainExpand says what to do about a driver that cannot grow a volume while
// it is in use. A Success would claim a size that nobody provided.
func explainExpand(err error) error {
	if csivol.FailedPrecondition(err) {
		return flex.Errorf(flex.CodeFailedPrecondition, "%w; this driver cannot expand the volume now: if it can while the volume is not in use, delete the pods that use it; it is expanded when the last one is gone", err)
	}
	return err
}
