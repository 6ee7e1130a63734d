package bridge

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// mount is attach, stage, publish, fsGroup and bind. The target is claimed
// first, so that nobody unstages in between.
func (b *Bridge) mount(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	want, err := d.Map(c.Options)
	if err != nil {
		return err
	}
	return b.do(ctx, want.Key(), operation{c.Command, c.Dir}, func(v *volume) error {
		return b.setUp(d, v, want, c.Dir)
	})
}

func (b *Bridge) setUp(d *FlexDriver, v *volume, want *csivol.Volume, dir string) error {
	f, err := v.features(d)
	if err != nil {
		return err
	}
	if err := b.describe(v, want, f); err != nil {
		return err
	}
	t, err := b.claim(d, v, want, dir)
	if err != nil {
		return err
	}
	err = b.bring(d, v, want, f, t, dir)
	if err != nil && isOver(err) {
		// The kubelet forgets a mount that failed: nobody will call unmount.
		if undo := b.release(d, v, want.Secrets, dir); undo != nil {
			v.log.Warn("a failed mount could not be undone; it will be tried again", "dir", dir, "error", undo)
		}
	}
	return err
}

// isOver reports whether nothing of a failed set-up is still going on at the
// driver. Our own errors count as over: they come after an RPC, or before.
func isOver(err error) bool {
	_, fromDriver := errors.AsType[*csivol.RPCError](err)
	return !fromDriver || csivol.Final(err)
}

// bring walks a target through the steps of a set-up.
func (b *Bridge) bring(d *FlexDriver, v *volume, want *csivol.Volume, f csivol.Features, t *volstate.Target, dir string) error {
	if err := b.attachTo(d, v, want, f, byNode); err != nil {
		return err
	}
	if err := b.stage(d, v, want, f); err != nil {
		return err
	}
	if err := b.nodePublish(d, v, want, t, dir); err != nil {
		return err
	}
	if err := b.applyFSGroup(d, want, f, t, dir); err != nil {
		return err
	}
	return b.bind(v, t, dir)
}

// claim notes that a pod wants the volume at dir.
func (b *Bridge) claim(d *FlexDriver, v *volume, want *csivol.Volume, dir string) (*volstate.Target, error) {
	t := v.record.Targets[dir]
	if t != nil && t.ReadOnly != want.ReadOnly {
		return nil, flex.Errorf(flex.CodeAlreadyExists, "volume %s is mounted at %s with read-only=%t, not %t as asked; unmount it first", v.key, dir, t.ReadOnly, want.ReadOnly)
	}
	if t == nil {
		t = &volstate.Target{Since: time.Now().UTC()}
		if !d.DirectPublish {
			private, err := kubeletdir.PrivateTarget(dir)
			if err != nil {
				return nil, flex.Errorf(flex.CodeInvalidArgument, "%w", err)
			}
			t.Private = private
		}
		if v.record.Targets == nil {
			v.record.Targets = map[string]*volstate.Target{}
		}
		v.record.Targets[dir] = t
	}
	t.Pod, t.ReadOnly, t.FSGroup = want.Pod, want.ReadOnly, want.FSGroup
	return t, nil
}

// target is the path that the driver gets.
func target(t *volstate.Target, dir string) string {
	if t.Private == "" {
		return dir
	}
	return t.Private
}

// nodePublish calls NodePublishVolume unless the record says that it is done.
func (b *Bridge) nodePublish(d *FlexDriver, v *volume, want *csivol.Volume, t *volstate.Target, dir string) error {
	if t.Publish == volstate.Done {
		return nil
	}
	r, path := v.record, target(t, dir)
	t.Publish, t.Since = volstate.Doing, time.Now().UTC()
	if err := b.save(v); err != nil {
		return err
	}
	// The driver makes the target itself, in a directory that is there.
	if err := b.dirs().Make(filepath.Dir(path)); err != nil {
		return flex.Errorf(flex.CodeInternal, "make the target's directory: %w", err)
	}
	err := v.rpc(d.Timeouts.Publish, func(ctx context.Context) error {
		return d.Service.NodePublish(ctx, csivol.PublishRequest{
			Handle:         v.key.Handle,
			PublishContext: r.PublishContext,
			StagingPath:    r.StagingPath,
			TargetPath:     path,
			Capability:     capability(r),
			ReadOnly:       t.ReadOnly,
			Secrets:        want.Secrets.NodePublish,
			Context:        publishedContext(d, want),
		})
	})
	if err != nil {
		t.LastError = err.Error()
		return errors.Join(err, b.save(v))
	}
	t.Publish, t.LastError = volstate.Done, ""
	return b.save(v)
}

// publishedContext adds what CSIDriver.spec.podInfoOnMount asks for
// (kubelet, pkg/volume/csi/csi_util.go, getPodInfoAttrs).
func publishedContext(d *FlexDriver, want *csivol.Volume) map[string]string {
	if !d.PodInfo {
		return want.Context
	}
	all := map[string]string{
		"csi.storage.k8s.io/pod.name":            want.Pod.Name,
		"csi.storage.k8s.io/pod.namespace":       want.Pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             want.Pod.UID,
		"csi.storage.k8s.io/serviceAccount.name": want.Pod.ServiceAccount,
		"csi.storage.k8s.io/ephemeral":           "false",
	}
	maps.Copy(all, want.Context)
	return all
}

// applyFSGroup does what the kubelet does for CSI volumes
// (pkg/volume/csi/csi_mounter.go, supportsFSGroup), before the mount is seen.
func (b *Bridge) applyFSGroup(d *FlexDriver, want *csivol.Volume, f csivol.Features, t *volstate.Target, dir string) error {
	switch {
	case want.FSGroup == nil, t.ReadOnly, t.Bound, f.MountGroup, d.FSGroup == FSGroupNone:
		return nil
	case d.FSGroup == FSGroupWithFSType || d.FSGroup == "":
		once := slices.Contains([]csivol.AccessMode{csivol.ReadWriteOnce, csivol.ReadWriteOncePod}, want.AccessMode)
		if want.FSType == "" || !once {
			return nil
		}
	}
	return b.Mounts.SetGroup(b.Context, target(t, dir), *want.FSGroup)
}

// bind is the commit point: from here on the kubelet sees the volume.
func (b *Bridge) bind(v *volume, t *volstate.Target, dir string) error {
	if t.Private != "" {
		if err := b.Mounts.Bind(v.ctx, t.Private, dir, t.ReadOnly); err != nil {
			return err
		}
	}
	t.Bound = true
	return b.save(v)
}

// unmount takes a volume away from a pod, and from the node when the pod was
// the last.
func (b *Bridge) unmount(ctx context.Context, d *FlexDriver, c *flex.Call) error {
	key, ok := b.find(c.Dir)
	if !ok {
		return b.tidy(ctx, c.Dir)
	}
	return b.do(ctx, key, operation{c.Command, c.Dir}, func(v *volume) error {
		return b.release(d, v, csivol.Secrets{}, c.Dir)
	})
}

// tidy unmounts what no record knows: never mounted, or the record was lost.
func (b *Bridge) tidy(ctx context.Context, dir string) error {
	if err := b.Mounts.Unmount(ctx, dir); err != nil {
		return err
	}
	private, err := kubeletdir.PrivateTarget(dir)
	if err != nil {
		return nil //nolint:nilerr // not a path of ours at all: there is nothing private
	}
	if err := b.Mounts.Unmount(ctx, private); err != nil {
		return err
	}
	kubeletdir.RemovePrivate(private, b.dirs().Remove)
	return nil
}

// release undoes a target, and with the last one the volume. Each step can be
// repeated; the target stays in the record until all is done, so that the
// kubelet's next try goes on where this one ended.
func (b *Bridge) release(d *FlexDriver, v *volume, s csivol.Secrets, dir string) error {
	t := v.record.Targets[dir]
	if t == nil {
		return b.tidy(v.ctx, dir)
	}
	if err := b.unpublish(d, v, t, dir); err != nil {
		t.LastError = err.Error()
		return errors.Join(err, b.save(v))
	}
	if len(v.record.Targets) == 1 && v.record.Device == "" {
		if err := b.leave(d, v, s); err != nil {
			return err
		}
	}
	delete(v.record.Targets, dir)
	return b.save(v)
}

// unpublish removes the bind and calls NodeUnpublishVolume.
func (b *Bridge) unpublish(d *FlexDriver, v *volume, t *volstate.Target, dir string) error {
	if err := b.Mounts.Unmount(v.ctx, dir); err != nil && t.Private != "" {
		return err
	}
	t.Bound = false
	if t.Publish != volstate.None {
		t.Publish, t.Since = volstate.Undoing, time.Now().UTC()
		if err := b.save(v); err != nil {
			return err
		}
		path := target(t, dir)
		err := v.rpc(d.Timeouts.Unpublish, func(ctx context.Context) error {
			return d.Service.NodeUnpublish(ctx, v.key.Handle, path)
		})
		if err == nil || csivol.NotFound(err) {
			err = b.gone(path, err)
		}
		if err != nil {
			return err
		}
		t.Publish = volstate.None
	}
	if t.Private != "" {
		kubeletdir.RemovePrivate(t.Private, b.dirs().Remove)
	}
	return nil
}

// leave unstages the volume and, if it was attached from here, detaches it.
func (b *Bridge) leave(d *FlexDriver, v *volume, s csivol.Secrets) error {
	if err := b.unstage(d, v); err != nil {
		return err
	}
	if v.record.Attachment == byControlPlane {
		return nil
	}
	return b.detachFrom(d, v, s)
}
