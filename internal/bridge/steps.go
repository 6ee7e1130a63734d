package bridge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// act takes a step: one request, one mount, or nothing where the record is all that
// changes. When it may be taken is not its business.
func (x *execution) act(s lifecycle.Step) (got lifecycle.StepResult, err error) {
	b, r, ctx := x.b, x.v.record, x.v.ctx
	switch s.Kind {
	case lifecycle.Fail:
		return got, s.Err
	case lifecycle.ControllerPublish:
		if got.PublishContext, err = x.controllerPublish(); err == nil {
			err = keepable(got.PublishContext)
		}
	case lifecycle.AskAttachment, lifecycle.AwaitAttachment:
		return x.attach(s)
	case lifecycle.ControllerUnpublish:
		err = x.controllerUnpublish()
	case lifecycle.DeleteAttachment:
		err = x.deleteAttachment(s)
	case lifecycle.NodeStage:
		err = x.nodeStage()
		got.StageMounted = err == nil && x.node.stageMounted(r.StagingPath)
	case lifecycle.NodeUnstage:
		err = x.nodeUnstage()
	case lifecycle.NodePublish:
		err = x.nodePublish(s.Dir)
	case lifecycle.Republish:
		err = x.republish(s.Dir)
	case lifecycle.NodeUnpublish:
		err = x.nodeUnpublish(s.Dir)
	case lifecycle.ApplyFSGroup:
		err = b.Mounts.SetGroup(ctx, target(r.Targets[s.Dir], s.Dir), *r.Targets[s.Dir].FSGroup)
	case lifecycle.Bind:
		err = x.bind(s.Dir)
	case lifecycle.Unbind:
		err = b.Mounts.Unmount(ctx, s.Dir)
	case lifecycle.RemoveMarker:
		if err = b.Mounts.Unmount(ctx, s.Dir); err == nil {
			b.registry.noteMarker(s.Dir, x.op.Goal != lifecycle.Reconcile) // a kubelet that calls knows
		}
	case lifecycle.PlaceMarker:
		if err = b.Mounts.Marker(ctx, s.Dir); err == nil {
			b.registry.noteMarker(s.Dir, true)
		}
	case lifecycle.RemoveDead:
		err = x.removeDead(s.Dir)
	case lifecycle.Drop:
		if targetPath := r.Targets[s.Dir].TargetPath; targetPath != "" {
			err = b.Mounts.RemoveTarget(ctx, targetPath)
		}
	case lifecycle.Tidy:
		err = b.tidy(ctx, s.Dir)
	case lifecycle.RemoveVolData:
		x.node.removeVolData(x.v.key)
	case lifecycle.ControllerExpand:
		got.NodeExpansionRequired, err = x.controllerExpand(s)
	case lifecycle.NodeExpand:
		err = x.nodeExpand(s.Dir)
	default:
		x.note(s)
	}
	return got, err
}

// note does what goes with a change of the record alone.
func (x *execution) note(s lifecycle.Step) {
	r := x.v.record
	switch s.Kind {
	case lifecycle.RecordTarget, lifecycle.ForgetStage, lifecycle.ForgetAttachment: // nothing goes with these
	case lifecycle.LeaveToKubelet:
		x.v.log.Info("the kubelet's CSI plugin has the volume; it is neither unstaged nor detached here")
	case lifecycle.NoteOwner:
		if s.Owner == volstate.Unclear {
			x.v.log.Info("the kubelet's CSI plugin has the volume for no pod, and may be about to; it stays staged until that is clear")
		}
	case lifecycle.NoteAilments:
		x.report(s.Ailments)
	case lifecycle.NoteExpanded:
		if s.Nominal {
			x.b.notify(r, r.Targets[s.Dir].Pod, "VolumeSizeNominal", "it was expanded to %d bytes, and driver %s expands nothing: its filesystem, which has no device of its own, has %d bytes, whatever the claim says", x.op.Size, x.d.Name, s.Filesystem)
		}
	}
}

func (x *execution) controllerPublish() (published map[string]string, err error) {
	r, secrets := x.v.record, x.secrets.ControllerPublish
	if x.d.AttachSecret != nil { // read when it is needed, and not with each call
		if secrets, err = x.d.AttachSecrets(x.v.ctx); err != nil {
			return nil, err
		}
	}
	err = x.v.withDeadline(x.d.Timeout, func(ctx context.Context) (err error) {
		published, err = x.d.Service.ControllerPublish(ctx, csivol.AttachRequest{
			Handle: x.v.key.Handle, NodeID: r.NodeID, Capability: capability(r), Context: r.Context, Secrets: secrets,
		})
		return err
	})
	return published, err
}

// maxPublishContext is far more than the 4 KiB that the CSI specification allows ("Size
// Limits"). What NodeStageVolume has to get is refused, and not clipped.
const maxPublishContext = 256 << 10

// keepable is an error for a publish context that no record can hold.
func keepable(publishContext map[string]string) error {
	size := 0
	for name, value := range publishContext {
		size += len(name) + len(value)
	}
	if size > maxPublishContext {
		return flex.Errorf(flex.CodeInternal, "attach the volume: its publish context has %d bytes, and at most %d can be recorded; ask the vendor of the CSI driver, which may send 4096", size, maxPublishContext)
	}
	return nil
}

// controllerUnpublish: the secrets are those of ControllerPublishVolume, which the
// specification wants again. Where they came from the Flex secret they are gone.
func (x *execution) controllerUnpublish() (err error) {
	secrets := x.secrets.ControllerPublish
	if secrets == nil && x.d.AttachSecrets != nil {
		if secrets, err = x.d.AttachSecrets(x.v.ctx); err != nil {
			return err
		}
	}
	err = x.v.withDeadline(x.d.Timeout, func(ctx context.Context) error {
		return x.d.Service.ControllerUnpublish(ctx, x.v.key.Handle, x.v.record.NodeID, secrets)
	})
	if csivol.NotFound(err) {
		return nil
	}
	return err
}

// reattachWait is short: others wait for the volume's turn. Reconcile comes back.
const reattachWait = 10 * time.Second

// attach asks for a VolumeAttachment, or only waits for it.
func (x *execution) attach(s lifecycle.Step) (got lifecycle.StepResult, err error) {
	r, ask, timeout := x.v.record, x.d.Attacher.Attach, x.v.patience(x.d.Timeout)
	if s.Kind == lifecycle.AwaitAttachment {
		ask = x.d.Attacher.Await
	}
	var pod csivol.Pod
	if x.op.Volume != nil {
		pod = x.op.Volume.Pod
	}
	if s.Patience == lifecycle.Shortly {
		timeout = reattachWait
	}
	before := r.PublishContext
	var attached csivol.Attached
	err = x.v.withDeadline(timeout, func(ctx context.Context) (err error) {
		attached, err = ask(ctx, x.b.attachmentOf(x.d, r, pod))
		return err
	})
	if err == nil && x.op.Goal == lifecycle.Reconcile {
		x.reattached(before, attached)
	}
	if err == nil {
		err = keepable(attached.PublishContext)
	}
	return lifecycle.StepResult{PublishContext: attached.PublishContext, Ours: attached.Ours, AttachedAsCSI: attached.AttachedAsCSI}, err
}

// reattached tells people that what was gone is there again.
func (x *execution) reattached(before map[string]string, got csivol.Attached) {
	b, r := x.b, x.v.record
	if !got.AttachedAsCSI { // else it comes again
		x.v.log.Info("the volume is attached again", "volumeAttachment", r.Object)
	}
	if r.Stage == volstate.Done && !maps.Equal(before, got.PublishContext) {
		b.notifyPods(r, "VolumeAttachmentChanged", "volume %s is attached again, and not as before: what is mounted may not work any more; delete the pods that have it on this node", r.Key())
	}
}

// defaultDetachWait is short: the volume is not in use any more, and the record
// says what is left to do.
const defaultDetachWait = 10 * time.Second

func (x *execution) deleteAttachment(s lifecycle.Step) error {
	b, v := x.b, x.v
	timeout := x.d.Timeout
	if s.Patience == lifecycle.Shortly {
		timeout = v.patience(cmp.Or(b.DetachWait, defaultDetachWait))
	}
	err := v.withDeadline(timeout, func(ctx context.Context) error {
		if x.d.Attacher == nil {
			return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is attached by VolumeAttachment %s, and this daemon has no access to the API server any more: give it --in-cluster or --kubeconfig", v.key, v.record.Object)
		}
		err := x.d.Attacher.Detach(ctx, b.attachmentOf(x.d, v.record, csivol.Pod{}))
		if earlier := b.renamed(v.record); err != nil && earlier != nil {
			err = flex.Errorf(flex.CodeOf(err), "%w: %w", earlier, err)
		}
		return err
	})
	if err != nil && s.MayFail {
		v.log.Warn("the volume is not detached yet; the detach continues after the pod has ended", "volumeAttachment", v.record.Object, "error", err)
		b.reconcileLater(v.record, "detach it")
	}
	return err
}

func (x *execution) nodeStage() error {
	r := x.v.record
	if err := x.b.dirs().Make(r.StagingPath); err != nil {
		return flex.Errorf(flex.CodeInternal, "make the staging directory: %w", err)
	}
	x.noteStageSecrets()
	return x.v.withDeadline(x.d.Timeout, func(ctx context.Context) error {
		return x.d.Service.NodeStage(ctx, csivol.StageRequest{
			Handle: x.v.key.Handle, PublishContext: r.PublishContext, StagingPath: r.StagingPath,
			Capability: capability(r), Secrets: x.secrets.NodeStage, Context: r.Context,
		})
	})
}

// nodeUnstage verifies that the path is free. It does not check first whether the driver
// stages, which a recovered record does not have: Features need the controller as well,
// and tear-down does not wait for a controller.
func (x *execution) nodeUnstage() error {
	path := x.v.record.StagingPath
	err := x.v.withDeadline(x.d.Timeout, func(ctx context.Context) error {
		return x.d.Service.NodeUnstage(ctx, x.v.key.Handle, path)
	})
	if err == nil || csivol.NotFound(err) || csivol.Unimplemented(err) {
		err = x.node.gone(path, err)
	}
	if err == nil { // as the kubelet does; some drivers have removed theirs already
		_ = x.b.dirs().Remove(path)
		_ = x.b.dirs().Remove(filepath.Dir(path))
	}
	return err
}

func (x *execution) nodePublish(dir string) error {
	b, t := x.b, x.v.record.Targets[dir]
	path := target(t, dir)
	// The driver makes the target itself, in a directory that is there.
	if err := b.dirs().Make(filepath.Dir(path)); err != nil {
		return flex.Errorf(flex.CodeInternal, "make the target's directory: %w", err)
	}
	if t.TargetPath == "" {
		_ = b.dirs().Remove(path) // the kubelet has made it; some drivers want it not to be there
	} else if err := b.Mounts.Guard(x.v.ctx, path); err != nil {
		return flex.Errorf(flex.CodeInternal, "mount the guard of the target path: %w", err)
	}
	if err := x.publishAt(t, path); err != nil {
		return err
	}
	if err := x.wasStaged(); err != nil {
		return err
	}
	if err := x.node.arrived(path); err != nil || t.TargetPath != "" || !t.ReadOnly {
		return err
	}
	// What the driver does in its own mount namespace does not propagate.
	return b.Mounts.ReadOnly(x.v.ctx, path)
}

// wasStaged verifies that what was staged when NodePublishVolume was called still is:
// with nothing at the staging path drivers publish the bare directory.
func (x *execution) wasStaged() error {
	r := x.v.record
	if r.Stage != volstate.Done || !r.StageMounted {
		return nil
	}
	mounts, err := x.node.stageMounts(r.StagingPath)
	if err == nil && len(mounts) == 0 {
		err = flex.Errorf(flex.CodeUnavailable, "volume %s was unstaged while it was published, most likely by the kubelet's CSI plugin, which had it before; it is staged again by the next call", r.Key())
	}
	return err
}

// publishAt is the RPC alone.
func (x *execution) publishAt(t *volstate.Target, path string) error {
	r := x.v.record
	c := capability(r)
	c.MountGroup = mountGroup(t.FSGroup, x.features()) // of this pod; the stage has the first one's
	volumeContext, secrets, err := x.forPod(t.Pod)
	if err != nil {
		return err
	}
	return x.v.withDeadline(x.d.Timeout, func(ctx context.Context) error {
		return x.d.Service.NodePublish(ctx, csivol.PublishRequest{
			Handle: x.v.key.Handle, PublishContext: r.PublishContext, StagingPath: r.StagingPath, TargetPath: path,
			Capability: c, ReadOnly: t.ReadOnly, Secrets: secrets, Context: volumeContext,
		})
	})
}

// nodeUnpublish verifies that the path is free.
func (x *execution) nodeUnpublish(dir string) error {
	t := x.v.record.Targets[dir]
	path := target(t, dir)
	err := x.v.withDeadline(x.d.Timeout, func(ctx context.Context) error {
		return x.d.Service.NodeUnpublish(ctx, x.v.key.Handle, path)
	})
	if err == nil || csivol.NotFound(err) {
		err = x.node.gone(path, err)
	}
	if err == nil && t.TargetPath != "" {
		err = x.b.Mounts.RemoveTarget(x.v.ctx, t.TargetPath)
	}
	return err
}

// bind: what a driver publishes into the kubelet's directory is there already.
func (x *execution) bind(dir string) error {
	t := x.v.record.Targets[dir]
	if t.TargetPath == "" {
		return nil
	}
	return x.b.Mounts.Bind(x.v.ctx, t.TargetPath, dir, t.ReadOnly)
}

// removeDead unmounts what a driver stumbles over: its own dead mount.
func (x *execution) removeDead(dir string) error {
	path := x.v.record.StagingPath
	if t := x.v.record.Targets[dir]; t != nil {
		path = target(t, dir)
	}
	mounts, err := x.node.stageMounts(path)
	if err != nil {
		return err
	}
	for _, mount := range mounts {
		if health(x.b.Mounts.Healthy(mount)).Mount != lifecycle.Dead {
			continue
		}
		if err := x.b.Mounts.Unmount(x.v.ctx, mount); err != nil {
			return err
		}
	}
	return nil
}

// republish repeats NodePublishVolume for a driver that refreshes what is in its
// volumes that way. An error leaves the mount as it is
// (kubernetes/kubernetes#121271).
func (x *execution) republish(dir string) error {
	x.b.registry.done(x.v.key, dir)
	seen := x.seeDriver()
	err := seen.Err
	if err == nil {
		err = x.seeCall(dir)
	}
	if err == nil && x.v.record.PublishContextIncomplete() {
		err = flex.Errorf(flex.CodeFailedPrecondition, "the publish context of volume %s holds values that look secret, and are not kept on the disk", x.v.key)
	}
	if err == nil {
		t := x.v.record.Targets[dir]
		err = x.publishAt(t, target(t, dir))
	}
	if err != nil {
		x.v.log.Warn("NodePublishVolume could not be repeated; what is mounted stays as it is", "error", err)
	}
	return err
}

func (x *execution) controllerExpand(s lifecycle.Step) (onNode bool, err error) {
	if err := x.expandSecrets(); err != nil {
		return false, err
	}
	size, timeout := x.op.Size, x.d.Timeout
	if s.Patience == lifecycle.Shortly {
		size, timeout = x.v.record.ExpandSize, x.v.patience(growWait)
	}
	err = x.v.withDeadline(timeout, func(ctx context.Context) error {
		onNode, err = x.d.Service.ControllerExpand(ctx, csivol.ExpandRequest{
			Handle: x.v.key.Handle, Size: size, Capability: capability(x.v.record), Secrets: x.secrets.ControllerExpand,
		})
		return err
	})
	if s.MayFail && err != nil {
		x.v.log.Warn("the volume could not be expanded while no pod uses it either", "bytes", size, "error", err)
	}
	return onNode, err
}

// growWait is how long a pod's end may take longer because its volume has to grow.
const growWait = 10 * time.Second

func (x *execution) nodeExpand(dir string) error {
	if err := x.expandSecrets(); err != nil {
		return err
	}
	r := x.v.record
	return x.v.withDeadline(x.d.Timeout, func(ctx context.Context) error {
		return x.d.Service.NodeExpand(ctx, csivol.ExpandRequest{
			Handle: x.v.key.Handle, VolumePath: target(r.Targets[dir], dir), StagingPath: r.StagingPath, Size: x.op.Size,
			OnNodeOnly: !x.features().ControllerExpand, Capability: capability(r), Secrets: x.secrets.NodeExpand,
		})
	})
}

// expandSecrets adds to the secrets of a call what is read for expansions only.
func (x *execution) expandSecrets() error {
	if x.d.ExpandSecrets == nil {
		return nil
	}
	return x.d.ExpandSecrets(x.v.ctx, &x.secrets)
}

// capability is CSI's VolumeCapability as it was recorded.
func capability(r *volstate.Record) csivol.Capability {
	return csivol.Capability{FSType: r.FSType, MountFlags: r.KnownFlags(), AccessMode: r.AccessMode.OrUsual(), MountGroup: r.MountGroup}
}

// mountGroup is the fsGroup, for a driver that applies it by itself.
func mountGroup(fsGroup *int64, f csivol.Features) string {
	if !f.MountGroup || fsGroup == nil {
		return ""
	}
	return fmt.Sprint(*fsGroup)
}
