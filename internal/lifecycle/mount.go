package lifecycle

import (
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// mountRules: attach, stage, publish, fsGroup and bind. The target is recorded
// first, so that no other operation unstages in between. The bind is the commit point: what
// the kubelet can see at its directory is a finished mount.
func mountRules() []Rule {
	return slices.Concat(failedSetUp(), admitRules(), oldStageRules(), []Rule{
		{"record-target", "this call has not recorded its target yet", "record the target, before any RPC: from then on no operation unstages the volume", func(c *plan) *Step {
			if c.tookForTarget(RecordTarget) {
				return nil
			}
			if c.target() == nil {
				if seen := c.mount(TheDir); seen.Mount == Unknown {
					return refuse(errUnreachable(c.dir, c.o.KubeletDir, seen.Err))
				}
			}
			return c.step(RecordTarget)
		}},
		{"mark-again", "attach: true, and the marker is not mounted: the reconciler removed it after the grace period", "mount the marker; without it the kubelet does not call unmountdevice", func(c *plan) *Step {
			device := c.driver().Device
			if device == "" || (c.r.Device == device && c.see(TheDir, device).Mount.Mounted()) {
				return nil
			}
			return &Step{Kind: PlaceMarker, Dir: device}
		}},
	}, bringRules())
}

// admitRules say whether there is anything to do, and whether it may be done.
func admitRules() []Rule {
	return []Rule{
		{"given-up-before", "the caller left before the operation began", "refuse: no step is taken", func(c *plan) *Step {
			if c.o.Awaited || c.op.hasBegun() {
				return nil
			}
			return refuse(errUnseen)
		}},
		{"unbind-unseen", "the caller left while this call bound the volume", "unmount the directory at once: the kubelet, for which the mount has failed, comes back after half a second (pkg/util/goroutinemap/exponentialbackoff, initialDurationBeforeRetry, Kubernetes v1.37.1)", func(c *plan) *Step {
			if c.o.Awaited || c.op.Goal != Mount || !c.tookForTarget(Bind) || c.target() == nil || c.target().TargetPath == "" {
				return nil
			}
			return c.step(Unbind)
		}},
		{"other-volume", "a target of another volume is at the directory", "refuse", func(c *plan) *Step {
			if seen := c.see(TheOther, c.dir); seen.Err != nil {
				return refuse(seen.Err)
			}
			return nil
		}},
		{"unmounted-meanwhile", "flexdriver unmounted the directory while the daemon was down: there is a pending unmount", "first [unpublish the target], and remove it from the record; the volume stays on the node, since it is wanted", func(c *plan) *Step {
			switch seen := c.see(ThePendingUnmount, c.dir); {
			case seen.Err != nil:
				return refuse(seen.Err)
			case !seen.Yes:
				return nil
			case c.target() == nil:
				return c.step(Tidy)
			}
			if s := c.decide(unpublishRules()); s != nil {
				return s
			}
			return c.step(Drop)
		}},
		{"forget-bind", "the target is bound, but nothing is mounted at the directory any more", "forget the bind: if this mount fails, no repair brings back what the kubelet does not know of", func(c *plan) *Step {
			if t := c.target(); t == nil || !t.Bound || c.tookForTarget(RecordTarget) {
				return nil
			}
			if m := c.mount(TheDir).Mount; m != NotMounted && m != NoDir {
				return nil
			}
			return c.step(ForgetBind)
		}},
		disagreeRule(),
		{"start-over", "the configuration changed since the volume was begun, and no target is bound or certainly published: before the first bind, or after a reboot", "first undo what was begun: [unpublish the target], [unstage the volume], [detach the volume]", startOver},
		{"ready", "the target is bound, and the mount works", "done; refuse if the mount has the other read-only flag, or does not answer", ready},
		driverAwayRule(),
	}
}

func disagreeRule() Rule {
	return Rule{"disagree", "two PersistentVolumes with this volume handle differ in driver, fsType, mount flags, access mode or volume context", "refuse: the volume is staged once for both", func(c *plan) *Step {
		if err := disagreement(c.r, c.op.Volume); err != nil {
			return refuse(err)
		}
		return nil
	}}
}

func driverAwayRule() Rule {
	return Rule{"driver-away", "the CSI driver is unavailable, or its policy (CSIDriver) cannot be read", "refuse", func(c *plan) *Step {
		if seen := c.see(TheDriver, ""); seen.Err != nil {
			return refuse(seen.Err)
		}
		return nil
	}}
}

// oldStageRules are for what was staged before, and does not work any more.
func oldStageRules() []Rule {
	return []Rule{
		{"stage-silent", "the staged mount does not answer", "refuse: it may answer again, as after the failover of a server", func(c *plan) *Step {
			if c.r.Stage != volstate.Done || c.stage().Mount != Silent {
				return nil
			}
			return refuse(errSilent(c.r, c.stage().Err))
		}},
		{"dead-unseen", "the staged mount or the mount for the pod is dead, and no container of the pod was ever created, or this call has bound it", "first [unpublish the target]", func(c *plan) *Step {
			t := c.target()
			if t == nil || t.Publish == volstate.None || !c.showsDead() || (!c.tookForTarget(Bind) && !c.see(ThePod, c.dir).Pod.NoContainer) {
				return nil
			}
			return c.decide(unpublishRules())
		}},
		{"stage-dead-in-use", "the staged mount is dead, and targets are published, or may be", "refuse: delete these pods first", func(c *plan) *Step {
			if c.r.Stage != volstate.Done || c.stage().Mount != Dead {
				return nil
			}
			if pods := publishedPods(c.r); len(pods) > 0 {
				return refuse(errStageDead(c.r, pods))
			}
			return nil
		}},
	}
}

// bringRules bring a volume to a target that is recorded.
func bringRules() []Rule {
	return slices.Concat(attachRules(), stageRules(), publishRules(), keptRules(), showRules())
}

// startOver: a configuration that was put right holds at once.
func startOver(c *plan) *Step {
	if Changed(c.r, c.op.Volume) == "" || c.tookForTarget(RecordTarget) || c.owner(false) != volstate.Ours {
		return nil
	}
	for _, dir := range c.dirs() {
		t := c.r.Targets[dir]
		if m := c.see(TheDir, dir).Mount; t.Bound || t.Publish == volstate.Done || m == Unknown || m.Mounted() {
			return nil
		}
	}
	for _, dir := range c.dirs() {
		if c.r.Targets[dir].Publish != volstate.None {
			return c.at(dir, unpublishRules())
		}
	}
	if s := c.decide(unstageRules()); s != nil || c.r.Attachment == byControlPlane {
		return s
	}
	return c.decide(detachRules(AsConfigured))
}

// ready: no driver has to be asked, and nothing touched that a pod may be using.
func ready(c *plan) *Step {
	t := c.target()
	if t == nil || !t.Bound || t.Publish != volstate.Done {
		return nil
	}
	if t.ReadOnly != c.op.Volume.ReadOnly {
		return refuse(flex.Errorf(flex.CodeAlreadyExists, "volume %s is mounted at %s with read-only=%t, not %t as asked; unmount it first", c.r.Key(), c.dir, t.ReadOnly, c.op.Volume.ReadOnly))
	}
	switch seen := c.mount(TheDir); seen.Mount {
	case Unknown:
		return refuse(seen.Err)
	case Alive:
		return c.step(Done)
	case Silent:
		return refuse(errSilent(c.r, seen.Err))
	}
	return nil
}

// showsDead reports whether what is mounted for the target, or staged, is dead.
func (c *plan) showsDead() bool {
	return c.mount(TheDir).Mount == Dead || c.mount(TheTarget).Mount == Dead || (c.r.Stage == volstate.Done && c.stage().Mount == Dead)
}

// failedSetUp: the kubelet calls nothing after a mount that failed, so what was
// begun is undone at once, or the next call goes on with it.
func failedSetUp() []Rule {
	return []Rule{
		clearDead(),
		{"undo-direct", "NodePublishVolume into the kubelet's directory, for a target of an earlier version, ended uncertain", "[unpublish the target], then refuse: the kubelet does not unmount its directory after a failed mount", func(c *plan) *Step {
			f := c.op.firstFailure()
			if f == nil || len(c.op.Failures) > 1 || f.Step.Kind != NodePublish || f.Class != Uncertain || c.target() == nil || c.target().TargetPath != "" {
				return nil
			}
			return c.decide(unpublishRules())
		}},
		{"undo-failed", "a step failed with an error that is final, local or not begun, and this call recorded the target", "[release the target], then refuse", func(c *plan) *Step {
			f := c.op.firstFailure()
			if f == nil || !isOver(f) || len(c.op.Failures) > 1 || c.target() == nil || !c.op.took(RecordTarget, c.op.Dir) {
				return nil
			}
			return c.decide(releaseRules())
		}},
		refuseFailed(),
	}
}

func refuseFailed() Rule {
	return Rule{"failed", "a step of this operation failed", "refuse with the first error", func(c *plan) *Step {
		if f := c.op.firstFailure(); f != nil {
			return refuse(f.Err)
		}
		return nil
	}}
}

// isOver reports whether nothing of what failed is still going on.
func isOver(f *Failure) bool { return f.Class == Final || f.Class == Local || f.Class == NotBegun }

// clearDead: some drivers stumble over their own dead mount.
func clearDead() Rule {
	return Rule{"without-the-dead", "NodeUnpublishVolume or NodeUnstageVolume failed, and the mount at its path is dead", "unmount the dead mount, then repeat the RPC: some drivers fail on their own dead mount", func(c *plan) *Step {
		f := c.op.lastFailure()
		if f == nil || c.op.took(RemoveDead, f.Step.Dir) {
			return nil
		}
		var seen Seen
		switch f.Step.Kind {
		case NodeUnpublish:
			seen = c.see(TheTarget, f.Step.Dir)
		case NodeUnstage:
			seen = c.stage()
		}
		if seen.Mount != Dead {
			return nil
		}
		return &Step{Kind: RemoveDead, Dir: f.Step.Dir}
	}}
}

// attachRules see to it that the volume is attached to this node, and to the
// publish context that the node service wants to see.
func attachRules() []Rule {
	return []Rule{
		{"no-route", "the configuration offers no way to attach the volume, or not the way that was begun", "fail", func(c *plan) *Step {
			if c.attached() {
				return nil
			}
			if _, err := c.route(); err != nil {
				return fail(err)
			}
			return nil
		}},
		{"detach-first", "its VolumeAttachment is being deleted", "wait until it is gone, before a new one is created", func(c *plan) *Step {
			if c.attached() || c.r.Attach != volstate.Undoing || !c.by(ByVolumeAttachment) {
				return nil
			}
			return &Step{Kind: DeleteAttachment}
		}},
		{"await-attachment", "kube-controller-manager attaches the volume (attach: true)", "wait for its VolumeAttachment", func(c *plan) *Step {
			if c.attached() || !c.by(ByVolumeAttachment) || !c.awaits() {
				return nil
			}
			return &Step{Kind: AwaitAttachment, Patience: c.patience()}
		}},
		{"ask-attachment", "the cluster attaches the volume (external-attacher)", "create the VolumeAttachment, and wait until it is attached", func(c *plan) *Step {
			if c.attached() || !c.by(ByVolumeAttachment) {
				return nil
			}
			return &Step{Kind: AskAttachment, Patience: c.patience()}
		}},
		{"controller-publish", "the bridge calls the controller service of the CSI driver", "ControllerPublishVolume", func(c *plan) *Step {
			if c.attached() || !c.by(ByControllerService) {
				return nil
			}
			return &Step{Kind: ControllerPublish}
		}},
	}
}

// attached reports whether the volume is attached as far as is known, and the
// publish context is known, too. A volume that the control plane has attached is
// asked for once more: that is idempotent, and the answer is the context.
func (c *plan) attached() bool {
	if c.tookForVolume(AskAttachment) || c.tookForVolume(AwaitAttachment) || c.tookForVolume(ControllerPublish) {
		return true
	}
	if c.r.Attach == volstate.Done && !c.r.PublishContextIncomplete() && !c.lost() {
		return true
	}
	route, err := c.route()
	return err == nil && route == NoAttach
}

// lost reports whether a VolumeAttachment is gone that the record says is there.
// What is not known is not lost.
func (c *plan) lost() bool {
	return c.r.Object != "" && c.r.Attach == volstate.Done && c.see(TheAttachment, "").Yes
}

func (c *plan) by(wanted Route) bool {
	route, err := c.route()
	return err == nil && route == wanted
}

// awaits: with a device mount path the volume is attached by others before.
func (c *plan) awaits() bool {
	return awaited(c.r) || (c.op.Goal != Attach && c.r.Device != "" && c.r.Attach == volstate.None)
}

// awaited reports whether another controller attaches the volume of a record.
func awaited(r *volstate.Record) bool { return r.Unmanaged && r.Attachment == byControlPlane }

// patience: only a caller waits as long as is configured.
func (c *plan) patience() Patience {
	if c.op.Goal == Reconcile {
		return Shortly
	}
	return AsConfigured
}

// route returns how the volume is attached. What has been begun is completed the
// way that it was begun.
func (c *plan) route() (Route, error) {
	d := c.driver()
	begun := c.r.Attach != volstate.None && (c.r.Object != "") != (d.Route == ByVolumeAttachment)
	switch {
	case d.RouteErr != nil:
		return NoAttach, d.RouteErr
	case d.Route == NoAttach:
		return NoAttach, nil
	case !begun && d.Route == ByVolumeAttachment:
		return ByVolumeAttachment, d.ClusterErr
	case !begun:
		return d.Route, nil
	case c.r.Object != "" && d.CanCluster:
		return ByVolumeAttachment, d.ClusterErr
	case c.r.Object == "" && d.Features.Attach:
		return ByControllerService, nil
	}
	return NoAttach, flex.Errorf(flex.CodeFailedPrecondition, "volume %s is attached, or was about to be, by a different method than driver %s is configured to use now (attach, controllerEndpoint); restore that configuration until the volume's pods on this node are gone", c.r.Key(), c.r.FlexDriver)
}

// stageRules: NodeStageVolume is called again in any doubt, also after a failed
// unstage, which may have unstaged half of it (kubernetes/kubernetes#86360).
func stageRules() []Rule {
	return []Rule{
		{"stage-dead", "the staged mount is dead, and no target is published", "first [unstage the volume]", func(c *plan) *Step {
			if c.r.Stage == volstate.None || c.publishedElsewhere() || c.stage().Mount != Dead {
				return nil
			}
			return c.decide(unstageRules())
		}},
		{"other-secrets", "NodeStageVolume may have succeeded with secrets that changed since, and no target is published", "first [unstage the volume]", func(c *plan) *Step {
			uncertain := c.r.Stage == volstate.Doing || c.r.Stage == volstate.Undoing
			if c.staged() || !uncertain || c.publishedElsewhere() || c.owner(false) != volstate.Ours || !c.see(TheSecrets, "").Yes {
				return nil
			}
			return c.decide(unstageRules())
		}},
		{"stages-no-more", "the driver no longer has STAGE_UNSTAGE_VOLUME, the stage is uncertain, and no target is published", "first [unstage the volume]: NodeStageVolume cannot be repeated", func(c *plan) *Step {
			uncertain := c.r.Stage == volstate.Doing || c.r.Stage == volstate.Undoing
			if c.driver().Features.Stage || !uncertain || c.publishedElsewhere() {
				return nil
			}
			return c.decide(unstageRules())
		}},
		{"published-before", "the stage is certain, but nothing is mounted there any more or the kubelet's CSI plugin has the volume staged as well; and a target that is not bound may be published. Not after a reboot, which makes the stage uncertain", "first [unpublish the target]: an earlier NodePublishVolume may have found the staging path bare, and a repeated one returns OK for what is there", func(c *plan) *Step {
			if c.staged() || c.r.Stage != volstate.Done {
				return nil
			}
			for _, dir := range c.dirs() {
				if t := c.r.Targets[dir]; !t.Bound && t.Publish != volstate.None && t.Publish != volstate.Done {
					return c.at(dir, unpublishRules())
				}
			}
			return nil
		}},
		{"stage", "the driver has STAGE_UNSTAGE_VOLUME, and the stage is uncertain, or the kubelet's CSI plugin has the volume staged as well", "NodeStageVolume", func(c *plan) *Step {
			if c.staged() {
				return nil
			}
			return &Step{Kind: NodeStage}
		}},
	}
}

// staged: while the kubelet's CSI plugin has the volume staged and nothing is
// published, it may unstage between our NodeStageVolume and NodePublishVolume,
// which would publish a bare directory. So nothing but our own, just now, counts.
func (c *plan) staged() bool {
	if c.tookForVolume(NodeStage) || !c.driver().Features.Stage {
		return true
	}
	return c.r.Stage == volstate.Done && !c.plugin().Staged && !c.stageGone()
}

// stageGone: what was mounted at the staging path is not any more.
func (c *plan) stageGone() bool {
	if c.r.Stage != volstate.Done || !c.r.StageMounted {
		return false
	}
	m := c.stage().Mount
	return m == NotMounted || m == NoDir
}

func publishRules() []Rule {
	return []Rule{
		{"target-silent", "the volume was published for the pod before, and that mount does not answer, or cannot be looked at", "refuse: it may answer again", func(c *plan) *Step {
			if !c.before() {
				return nil
			}
			switch seen := c.mount(TheTarget); seen.Mount {
			case Silent:
				return refuse(errSilent(c.r, seen.Err))
			case Unknown:
				return refuse(seen.Err)
			}
			return nil
		}},
		{"target-dead", "the volume was published for the pod before, and that mount is dead or gone", "first [unpublish the target]", func(c *plan) *Step {
			if !c.before() || (c.target().Publish == volstate.Done && c.mount(TheTarget).Mount == Alive) {
				return nil
			}
			return c.decide(unpublishRules())
		}},
		{"pod-gone", "the directory of the pod's volumes no longer exists", "fail: the kubelet would not call unmount", func(c *plan) *Step {
			if c.target().Publish == volstate.Done || c.see(ThePod, c.dir).Pod.Volumes {
				return nil
			}
			return fail(errPodGone(c.dir))
		}},
		{"unseen-direct", "a target of an earlier version in the kubelet's directory, and no caller waits for the mount any more", "at once [unpublish the target], then refuse: for the kubelet the mount has failed", func(c *plan) *Step {
			switch t := c.target(); {
			case c.o.Awaited || c.op.Goal != Mount || t.TargetPath != "" || t.Bound:
				return nil
			case t.Publish == volstate.Done:
				return c.decide(unpublishRules())
			case c.tookForTarget(NodeUnpublish):
				return refuse(errUnseen)
			}
			return nil
		}},
		{"publish", "the volume is not published for the pod, or that is uncertain", "NodePublishVolume to the target path", func(c *plan) *Step {
			if c.target().Publish == volstate.Done {
				return nil
			}
			return c.step(NodePublish)
		}},
	}
}

// before reports whether the target was published before this operation, which may have
// unbound it.
func (c *plan) before() bool {
	p := c.target().Publish
	return (p == volstate.Done || (p == volstate.Undoing && c.tookForTarget(Unbind))) && !c.tookForTarget(NodePublish)
}

// keptRules: from NodePublishVolume on what is published keeps the kubelet from
// unstaging (pkg/volume/util/operationexecutor/operation_generator.go,
// GenerateUnmountDeviceFunc, which looks for other mounts of it, Kubernetes v1.37.1),
// and so the control plane from detaching. Before it they may have. That the plugin
// has the volume for a pod is what a kubelet knows again after a restart; that it has
// it staged is not (kubernetes/kubernetes#85476).
func keptRules() []Rule {
	return []Rule{
		{"attachment-lost", "after NodePublishVolume the attachment is gone, or it is the attach-detach controller's for a CSI volume that the kubelet's CSI plugin has for no pod any more", "fail: the next mount attaches it again", func(c *plan) *Step {
			if c.target().Bound || !((c.op.AttachedAsCSI && !c.plugin().Pods) || c.lost()) {
				return nil
			}
			s := fail(errBeingDetached(c.r))
			s.DoubtAttachment = true
			return s
		}},
	}
}

// showRules show the volume to the pod.
func showRules() []Rule {
	return []Rule{
		{"fsgroup", "the pod has an fsGroup that the driver does not apply", "give the files to the group, before the pod sees them", func(c *plan) *Step {
			if c.tookForTarget(ApplyFSGroup) || !c.wantsGroup() {
				return nil
			}
			return c.step(ApplyFSGroup)
		}},
		{"unseen", "no caller waits for the mount any more", "refuse: the next mount binds it", func(c *plan) *Step {
			if c.o.Awaited || c.op.Goal == Reconcile || c.bound() {
				return nil
			}
			return refuse(errUnseen)
		}},
		{"bind", "the volume is not bound to the kubelet's directory", "bind it: the commit point", func(c *plan) *Step {
			if c.tookForTarget(Bind) || c.bound() {
				return nil
			}
			if seen := c.mount(TheDir); seen.Mount == Unknown {
				return fail(seen.Err)
			}
			return c.step(Bind)
		}},
	}
}

// bound: what is bound already is left alone, since a pod may be using it.
func (c *plan) bound() bool { return c.target().Bound && c.mount(TheDir).Mount.Mounted() }

// wantsGroup is what the kubelet does for CSI volumes.
func (c *plan) wantsGroup() bool {
	t, d := c.target(), c.driver()
	if t.FSGroup == nil || t.ReadOnly || ((t.Bound || c.tookForTarget(ForgetBind)) && !c.tookForTarget(NodePublish)) || d.Features.MountGroup {
		return false
	}
	return csivol.FSGroupSkipped(d.FSGroup, c.r.FSType, csivol.ModesOr(c.r.AccessModes, c.r.AccessMode)) == ""
}
