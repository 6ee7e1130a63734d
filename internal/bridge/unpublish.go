package bridge

import (
	"context"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// unmount takes a volume away from a pod, and from the node when the pod was
// the last.
func (b *Bridge) unmount(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.find(c.Dir)
	if !ok {
		return b.tidy(ctx, c.Dir)
	}
	return b.do(ctx, key, operation{command: c.Command, dir: c.Dir}, func(v *volume) error {
		d, err := b.undoerOf(d, v.record)
		if err != nil {
			return err
		}
		return b.letGo(d, v, c.Dir)
	})
}

// letGo releases a target that the kubelet does not want any more.
func (b *Bridge) letGo(d *FlexDriver, v *volume, dir string) error {
	f := b.fate(v, dir)
	if err := b.mayLetGo(v, dir, f); err != nil {
		return remember(v.record, err)
	}
	v.next = f.Next != ""
	return b.release(d, v, csivol.Secrets{}, dir)
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
	return b.forgetTombstone(dir)
}

// release undoes a target, and with the last one the volume. Each step can be
// repeated; the target stays in the record until all is done, so that the
// kubelet's next try goes on where this one ended.
func (b *Bridge) release(d *FlexDriver, v *volume, s csivol.Secrets, dir string) error {
	t := v.record.Targets[dir]
	if t == nil {
		return b.tidy(v.ctx, dir)
	}
	who, err := b.ownerBefore(v, t)
	if err != nil {
		return err
	}
	t.Bound = false
	if err := b.unpublish(d, v, t, dir); err != nil {
		t.LastError = err.Error()
		return err
	}
	if len(v.record.Targets) == 1 && v.record.Device == "" {
		if err := b.leave(d, v, s, who); err != nil {
			return err
		}
	}
	delete(v.record.Targets, dir)
	if err := b.save(v); err != nil {
		return err
	}
	return b.forgetTombstone(dir)
}

// unpublish removes the bind and calls NodeUnpublishVolume. Whether the pod
// ought to have the volume (Bound) is not its business.
func (b *Bridge) unpublish(d *FlexDriver, v *volume, t *volstate.Target, dir string) error {
	// What a driver has published here itself is for it to remove, or nothing
	// would tell whether it has.
	if t.Private != "" {
		if err := b.Mounts.Unmount(v.ctx, dir); err != nil {
			return err
		}
	}
	if t.Publish != volstate.None {
		t.Publish, t.Since = volstate.Undoing, time.Now().UTC()
		if err := b.save(v); err != nil {
			return err
		}
		if err := b.unpublishAt(d, v, target(t, dir)); err != nil {
			return err
		}
		t.Publish = volstate.None
	}
	if t.Private != "" {
		kubeletdir.RemovePrivate(t.Private, b.dirs().Remove)
	}
	return nil
}

// unpublishAt calls NodeUnpublishVolume and verifies that the path is free. A
// driver that stumbles over its own dead mount gets a second try without it.
func (b *Bridge) unpublishAt(d *FlexDriver, v *volume, path string) error {
	call := func() error {
		err := v.rpc(d.Timeouts.Unpublish, func(ctx context.Context) error {
			return d.Service.NodeUnpublish(ctx, v.key.Handle, path)
		})
		if err == nil || csivol.NotFound(err) {
			err = b.gone(path, err)
		}
		return err
	}
	return b.withoutDead(v, path, call)
}

// leave unstages the volume and, if it was attached from here, detaches it, unless
// somebody else does. Then it grows, if it could not before.
func (b *Bridge) leave(d *FlexDriver, v *volume, s csivol.Secrets, who owner) error {
	if left, err := b.leaveTo(v, who); err != nil || left {
		return err
	}
	if err := b.unstage(d, v); err != nil {
		return err
	}
	if v.record.Attachment != byControlPlane || v.record.Foreign {
		if err := b.detachSoon(d, v, s); err != nil {
			return err
		}
	}
	b.growUnused(d, v)
	return nil
}
