package bridge

import (
	"context"
	"errors"
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
	want, err := d.Map(ctx, c.Options)
	if err != nil {
		return err
	}
	return b.do(ctx, want.Key(), operation{command: c.Command, dir: c.Dir}, func(v *volume) error {
		if !v.awaited() {
			return errUnseen // given up before its turn came; nothing is begun
		}
		return b.setUp(d, v, want, c.Dir)
	})
}

// A setup is what a volume is brought to the node with, or to a pod.
type setup struct {
	d      *FlexDriver
	v      *volume
	want   *csivol.Volume
	f      csivol.Features
	policy Policy
	// awaits: somebody else attaches the volume through the cluster.
	awaits bool
}

// setup asks for all that is wanted beside the call itself.
func (b *Bridge) setup(d *FlexDriver, v *volume, want *csivol.Volume) (*setup, error) {
	f, err := v.features(d)
	if err != nil {
		b.noticeAway(want, err)
		return nil, err
	}
	policy, err := d.policy(v.ctx)
	if err != nil {
		return nil, err
	}
	return &setup{d: d, v: v, want: want, f: f, policy: policy}, nil
}

func (b *Bridge) setUp(d *FlexDriver, v *volume, want *csivol.Volume, dir string) error {
	if err := b.settle(v, dir); err != nil {
		return err
	}
	takeBack(v.record)
	if err := b.startOver(d, v, want); err != nil {
		return err
	}
	if err := b.describe(d, v, want); err != nil {
		return err
	}
	if ready, err := b.ready(v, want, dir); err != nil || ready {
		return err
	}
	if t := v.record.Targets[dir]; t != nil {
		t.Since = time.Now().UTC() // somebody has come back for it
	}
	s, err := b.setup(d, v, want)
	if err != nil {
		return err
	}
	if err := b.reviveStage(d, v); err != nil {
		return err
	}
	t, err := b.claim(d, v, want, dir)
	if err != nil {
		return err
	}
	err = b.bring(s, t, dir)
	if err != nil && isOver(err) {
		// The kubelet forgets a mount that failed: nobody will call unmount.
		if undo := b.release(d, v, want.Secrets, dir); undo != nil {
			v.log.Warn("a failed mount could not be undone; it will be tried again", "dir", dir, "error", undo)
		}
	}
	return err
}

// ready reports whether dir has the volume already, and that it is alive: then
// nobody has to be asked, and nothing be touched that a pod may be using.
func (b *Bridge) ready(v *volume, want *csivol.Volume, dir string) (bool, error) {
	t := v.record.Targets[dir]
	if t == nil || !t.Bound || t.Publish != volstate.Done {
		return false, nil
	}
	if t.ReadOnly != want.ReadOnly {
		return false, flex.Errorf(flex.CodeAlreadyExists, "volume %s is mounted at %s with read-only=%t, not %t as asked; unmount it first", v.key, dir, t.ReadOnly, want.ReadOnly)
	}
	mounted, err := b.Mounts.Mounted(dir)
	if err != nil || !mounted {
		return false, err
	}
	health := b.Mounts.Healthy(dir)
	if silent(health) {
		return false, unanswered(v, health)
	}
	return health == nil, nil
}

// isOver reports whether nothing of a failed set-up is still going on at the
// driver. Our own errors count as over: they come after an RPC, or before.
func isOver(err error) bool {
	_, fromDriver := errors.AsType[*csivol.RPCError](err)
	_, goesOn := errors.AsType[unsettled](err)
	return !errors.Is(err, errUnseen) && !goesOn && (!fromDriver || csivol.Final(err))
}

// errUnseen ends what the kubelet, which has been told that mount failed, does
// not come back for yet.
var errUnseen = flex.Errorf(flex.CodeAborted, "the caller of mount had left; the next one completes it")

// bring walks a target through the steps of a set-up.
func (b *Bridge) bring(s *setup, t *volstate.Target, dir string) error {
	by := byNode
	if s.v.record.Device != "" { // attach: true
		by, s.awaits = byControlPlane, true
	}
	if err := b.attachTo(s, by); err != nil {
		return err
	}
	if err := b.stage(s); err != nil {
		return err
	}
	if err := b.reviveTarget(s.d, s.v, t, dir); err != nil {
		return err
	}
	if err := b.nodePublish(s, t, dir); err != nil {
		return err
	}
	if err := b.stillAttached(s.v); err != nil && !t.Bound {
		return err
	}
	if err := b.applyFSGroup(s, t, dir); err != nil {
		return err
	}
	return b.bind(s, t, dir)
}

// settle completes an unmount of dir that was made without this process, and
// sees to it that dir belongs to no other volume.
func (b *Bridge) settle(v *volume, dir string) error {
	if key, ok := b.byDirectory(dir); ok && key != v.key {
		return flex.Errorf(flex.CodeFailedPrecondition, "%s still belongs to volume %s; it is free when unmount of it has succeeded", dir, key)
	}
	buried, err := b.tombstone(dir)
	if err != nil || !buried {
		return err
	}
	return b.buryHere(v, dir)
}

// claim notes that a pod wants the volume at dir.
func (b *Bridge) claim(d *FlexDriver, v *volume, want *csivol.Volume, dir string) (*volstate.Target, error) {
	t := v.record.Targets[dir]
	if t == nil {
		if err := b.reachable(dir); err != nil {
			return nil, err
		}
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

// reachable is asked before anything is done for dir: where nothing can be
// looked at nothing could be undone either.
func (b *Bridge) reachable(dir string) error {
	if _, err := b.Mounts.Mounted(dir); err != nil {
		return flex.Errorf(flex.CodeFailedPrecondition, "nothing can be mounted at %s: %w; flex2csi was started for the kubelet's directory %s (--kubelet-dir)", dir, err, b.KubeletDir)
	}
	return nil
}

// target is the path that the driver gets.
func target(t *volstate.Target, dir string) string {
	if t.Private == "" {
		return dir
	}
	return t.Private
}

// nodePublish calls NodePublishVolume unless the record says that it is done.
func (b *Bridge) nodePublish(s *setup, t *volstate.Target, dir string) error {
	if t.Publish == volstate.Done {
		return nil
	}
	// The kubelet has made it, and removes it with the pod. Made here it would
	// stay, with a mount in it: of a pod that is gone nobody calls unmount.
	if !b.there(filepath.Dir(dir)) {
		return flex.Errorf(flex.CodeNotFound, "%s, which the kubelet makes for a pod's volumes, is gone: so is the pod", filepath.Dir(dir))
	}
	path := target(t, dir)
	t.Publish, t.Since = volstate.Doing, time.Now().UTC()
	if err := b.save(s.v); err != nil {
		return err
	}
	// The driver makes the target itself, in a directory that is there.
	if err := b.dirs().Make(filepath.Dir(path)); err != nil {
		return flex.Errorf(flex.CodeInternal, "make the target's directory: %w", err)
	}
	if t.Private == "" {
		_ = b.dirs().Remove(path) // the kubelet has made it; some drivers want it not to be there
	}
	err := b.publishAt(s, t, path)
	if err == nil {
		err = b.arrived(s.v, t, path)
	}
	if err != nil {
		if r := s.v.record; r.Stage == volstate.Done && (csivol.NotFound(err) || csivol.FailedPrecondition(err)) {
			r.Stage = volstate.Doing // perhaps it is not staged any more
		}
		t.LastError = err.Error()
		return err
	}
	t.Publish, t.LastError, t.Dead = volstate.Done, "", ""
	return nil
}

// arrived verifies that what a driver has published can be seen on the node, as it
// was asked for. Otherwise the pod would have a bare directory, and write to the
// node's disk. What is not bound read-only is made so here: what the driver does in
// its own mount namespace does not propagate.
func (b *Bridge) arrived(v *volume, t *volstate.Target, path string) error {
	mounted, err := b.Mounts.Mounted(path)
	if err == nil && !mounted {
		err = flex.Errorf(flex.CodeInternal, "the driver reported success, and nothing is mounted at %s on the node; its pod has to mount the kubelet's directory with mountPropagation: Bidirectional", path)
	}
	if err == nil {
		err = b.stillStaged(v)
	}
	if err == nil && t.Private == "" && t.ReadOnly {
		err = b.Mounts.ReadOnly(v.ctx, path)
	}
	return err
}

// stillStaged is an error if what was published may be a bare directory. From here
// on what is published keeps the kubelet from unstaging (pkg/volume/util/
// operationexecutor/operation_generator.go, GenerateUnmountDeviceFunc, which looks
// for other mounts of it, Kubernetes v1.37.1).
func (b *Bridge) stillStaged(v *volume) error {
	r := v.record
	if r.Stage != volstate.Done || !r.StageMounted || b.stageMounted(r.StagingPath) {
		return nil
	}
	return flex.Errorf(flex.CodeUnavailable, "volume %s was unstaged while it was published, most likely by the kubelet's CSI plugin, which had it before; it is staged again by the next call", v.key)
}

// stillAttached is an error if the control plane may detach what was published, as
// the CSI volume that it was. From here on what is published keeps the kubelet, and
// so the control plane, from that.
func (b *Bridge) stillAttached(v *volume) error {
	r := v.record
	kept := !v.lent || b.there(b.volDataPath(v.key))
	if v.lent && kept {
		r.Attach = volstate.Done
	}
	if kept && !b.attachmentLost(r) {
		return nil
	}
	r.Attach = volstate.Doing
	return flex.Errorf(flex.CodeUnavailable, "VolumeAttachment %s of volume %s is being deleted by the control plane, or is about to be, now that the kubelet's CSI plugin has let go of the volume; it is attached again by the next call", r.Object, v.key)
}

// publishAt is the RPC alone.
func (b *Bridge) publishAt(s *setup, t *volstate.Target, path string) error {
	r := s.v.record
	c := capability(r)
	c.MountGroup = mountGroup(t.FSGroup, s.f) // of this pod; the stage has the first one's
	volumeContext, secrets, err := b.forPod(s, t.Pod)
	if err != nil {
		return err
	}
	return s.v.rpc(s.d.Timeouts.Publish, func(ctx context.Context) error {
		return s.d.Service.NodePublish(ctx, csivol.PublishRequest{
			Handle:         s.v.key.Handle,
			PublishContext: r.PublishContext,
			StagingPath:    r.StagingPath,
			TargetPath:     path,
			Capability:     c,
			ReadOnly:       t.ReadOnly,
			Secrets:        secrets,
			Context:        volumeContext,
		})
	})
}

// applyFSGroup does what the kubelet does for CSI volumes
// (pkg/volume/csi/csi_mounter.go, supportsFSGroup), before the mount is seen.
func (b *Bridge) applyFSGroup(s *setup, t *volstate.Target, dir string) error {
	want := s.want
	switch policy := s.policy.FSGroup; {
	case want.FSGroup == nil, t.ReadOnly, t.Bound, s.f.MountGroup, policy == FSGroupNone:
		return nil
	case policy == FSGroupWithFSType || policy == "":
		if s.v.record.FSType == "" || !slices.ContainsFunc(csivol.ModesOr(want.AccessModes, want.AccessMode), ofOneNode) {
			return nil
		}
	}
	return b.Mounts.SetGroup(s.v.ctx, target(t, dir), *want.FSGroup)
}

func ofOneNode(m csivol.AccessMode) bool {
	return m == csivol.ReadWriteOnce || m == csivol.ReadWriteOncePod
}

// bind is the commit point: from here on the kubelet sees the volume. What is
// bound already is left alone, since a pod may be using it.
//
// A mount that has been given up stays unseen until the kubelet comes back. Of
// a pod that was deleted meanwhile it would never call unmount, and not remove
// the directory either, which is how Reconcile knows that a pod is gone. What the
// driver has published there itself is unpublished at once.
func (b *Bridge) bind(s *setup, t *volstate.Target, dir string) error {
	v := s.v
	mounted, err := b.Mounts.Mounted(dir)
	if err != nil {
		return err
	}
	if t.Bound && mounted {
		return nil
	}
	if !v.awaited() {
		if t.Private == "" {
			err = b.unpublish(s.d, v, t, dir)
		}
		return errors.Join(errUnseen, err)
	}
	if t.Private != "" {
		if err := b.Mounts.Bind(v.ctx, t.Private, dir, t.ReadOnly); err != nil {
			return err
		}
	}
	t.Bound = true
	return nil
}
