package lifecycle

import (
	"slices"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// What only volumes with attach: true have: the callouts attach, detach,
// mountdevice and unmountdevice. On a node attach and detach come from a kubelet
// that attaches by itself (enableControllerAttachDetach: false).

// Who asked for an attachment, and so who detaches: mount and the last unmount, or
// callouts of their own.
const (
	byNode         = "node"
	byControlPlane = "control plane"
)

// mountDeviceRules leave a marker at the device mount path: without a mount point
// there the kubelet would never call unmountdevice. The volume is attached and
// staged by mount: only that tells for which pod, and so whether the pod may have
// it.
func mountDeviceRules() []Rule {
	return []Rule{
		refuseFailed(),
		disagreeRule(),
		{"other-device", "another PersistentVolume with this volume handle has a device mount path on this node", "refuse: delete its pods first", func(c *plan) *Step {
			if c.r.Device == "" || c.r.Device == c.dir {
				return nil
			}
			return refuse(errOtherDevice(c.r, c.op.Volume))
		}},
		{"mark", "this call has not mounted the marker", "mount the marker, so that the kubelet calls unmountdevice", func(c *plan) *Step {
			if c.tookForTarget(PlaceMarker) {
				return nil
			}
			if seen := c.see(TheDir, c.dir); seen.Mount == Unknown {
				return refuse(errUnreachable(c.dir, c.o.KubeletDir, seen.Err))
			}
			return c.step(PlaceMarker)
		}},
	}
}

// unmountDeviceRules: the kubelet's own check that no pod has the volume any more
// does not see through the marker; ours has to. A Success has the control plane
// detach the volume, so nothing may be staged then.
func unmountDeviceRules() []Rule {
	return slices.Concat([]Rule{clearDead(), refuseFailed()}, releaseDeviceRules())
}

func releaseDeviceRules() []Rule {
	return slices.Concat(
		[]Rule{
			{"unseen-target", "a target is neither bound nor mounted: its mount failed, so the kubelet does not know of it", "[release the target]", func(c *plan) *Step {
				for _, dir := range c.dirs() {
					seen := c.see(TheDir, dir)
					switch {
					case seen.Mount == Unknown && c.missing == nil:
						return refuse(seen.Err)
					case c.missing == nil && !seen.Mount.Mounted() && !c.r.Targets[dir].Bound:
						return c.at(dir, releaseRules())
					}
				}
				return nil
			}},
			{"device-in-use", "pods of this node have the volume", "refuse: unmount comes before unmountdevice", func(c *plan) *Step {
				if n := len(c.r.Targets); n > 0 {
					return refuse(flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still mounted for %d pods of this node; unmount comes before unmountdevice", c.r.Key(), n))
				}
				return nil
			}},
		},
		leaveButDetachRules(),
		[]Rule{
			{"unmark", "the marker is mounted, or may be", "unmount it", func(c *plan) *Step {
				if (c.r.Device == "" && c.tookForTarget(RemoveMarker)) || (c.r.Device == "" && c.op.Goal != UnmountDevice) {
					return nil
				}
				return c.step(RemoveMarker)
			}},
			{"detach-device", "no detach callout follows", "[detach the volume]", func(c *plan) *Step {
				if c.detachComes() {
					return nil
				}
				return c.decide(detachRules(Shortly))
			}},
		},
	)
}

// detachComes: what a callout has attached a callout detaches.
func (c *plan) detachComes() bool {
	return c.r.Attachment == byControlPlane && c.r.Attach == volstate.Done && !c.r.Unmanaged
}

// leaveButDetachRules are leaveRules without their end.
func leaveButDetachRules() []Rule {
	return slices.DeleteFunc(leaveRules(), func(r Rule) bool { return r.Name == "detach-last" || r.Name == "grow-unused" })
}

func attachGoalRules() []Rule {
	return slices.Concat(
		[]Rule{
			refuseFailed(),
			driverAwayRule(),
			{"no-pod", "the volume is not attached, and no pod of the node uses the claim of the PersistentVolume", "refuse", func(c *plan) *Step {
				if c.r.Attach == volstate.Done || c.tookForTarget(RecordTarget) {
					return nil
				}
				if seen := c.see(TheClaim, ""); seen.Err != nil {
					return refuse(seen.Err)
				}
				return nil
			}},
			disagreeRule(),
			{"attach-claim", "this call has not recorded the volume yet", "record what the volume is", func(c *plan) *Step {
				if c.tookForTarget(RecordTarget) {
					return nil
				}
				return c.step(RecordTarget)
			}},
		},
		attachRules(),
		[]Rule{
			{"unseen-attach", "no caller waits for the attachment any more", "fail, and leave it uncertain: the kubelet forgets it, so the next attach asks again, or the reconciler detaches the volume", func(c *plan) *Step {
				if c.o.Awaited || (!c.tookForVolume(ControllerPublish) && !c.tookForVolume(AskAttachment)) {
					return nil
				}
				s := fail(errUnseenAttach)
				s.DoubtAttachment = true
				return s
			}},
		},
	)
}

// detachGoalRules: what is still staged is not detached. Data that was not written
// back would be lost.
func detachGoalRules() []Rule {
	return slices.Concat(
		[]Rule{
			clearDead(), refuseFailed(),
			{"forgotten-device", "nothing is mounted at the device mount path, as after a reboot: the kubelet does not call unmountdevice", "first [release the device mount path]", func(c *plan) *Step {
				if c.r.Device == "" {
					return nil
				}
				switch seen := c.see(TheDevice, ""); {
				case seen.Mount == Unknown:
					return refuse(seen.Err)
				case seen.Mount.Mounted():
					return nil
				}
				return c.at(c.r.Device, releaseDeviceRules())
			}},
			{"detach-in-use", "the volume is staged, or has targets", "refuse: it can be detached after its last pod", func(c *plan) *Step {
				if c.r.Stage == volstate.None && len(c.r.Targets) == 0 {
					return nil
				}
				return refuse(flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still in use on node %s and is not detached; it will be when its last pod is gone", c.r.Key(), c.o.Node))
			}},
		},
		detachRules(AsConfigured),
	)
}
