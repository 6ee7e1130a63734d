package lifecycle

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A scene is one question to the planner. It is for a rule that the model does not
// need: what the rule is for happens outside of the model, or another rule comes to the
// same end later. The answer says what would be noticed without it.
type scene struct {
	rule, sentence string
	set            func(*question)
	kind           StepKind
	says           string // part of the error
}

// A question is what the planner is asked.
type question struct {
	r      *volstate.Record
	o      *Observed
	op     *Operation
	t      *volstate.Target // of pod a
	driver *DriverFacts
	table  *Table // nil: that of the goal
}

const (
	dirA = "/k/pods/a/volumes/v~d/a"
	dirB = "/k/pods/b/volumes/v~d/a"
)

// usual: the containers of pod a have the volume, and mount is called for it again.
func usual() *question {
	c := &config{nodes: 1, pods: podCount, stage: true}
	m := newModel(c)
	v := c.volumeOf(0)
	q := &question{t: &volstate.Target{TargetPath: c.private(0), Pod: v.Pod, FSGroup: v.FSGroup, Publish: volstate.Done, Bound: true, Since: now()}}
	q.r = &volstate.Record{
		Driver: "d", Handle: "h", Stage: volstate.Done, StagingPath: stagingDir, StageMounted: true, Changed: now(),
		Targets: map[string]*volstate.Target{dirA: q.t},
	}
	fill(q.r, v)
	q.op, q.o = m.operation(op{}), m.observed(op{awaited: true}, m.facts(seen{
		stage: alive, dirs: [podCount]mnt{alive}, targets: [podCount]mnt{alive}, there: [podCount]bool{true, true},
		pods: [podCount]podPhase{podRunning, podWanted}, ran: [podCount]bool{true},
	}))
	q.driver = q.o.Facts[Fact{What: TheDriver}].Driver
	q.goal(Mount, dirA)
	return q
}

func (q *question) goal(g Goal, dir string) {
	c := &config{}
	q.op.Wanted = Wanted{Goal: g, Dir: dir, Volume: c.volumeOf(0)}
	switch {
	case dir == dirB:
		q.op.Volume = c.volumeOf(1)
	case g == Expand:
		q.op.Size, q.op.OldSize = 2, 1
	}
}

func (q *question) see(what FactKind, dir string, seen Seen) { q.o.Facts[Fact{what, dir}] = seen }

func (q *question) took(k StepKind, dir string) { q.op.noteTaken(k, dir) }

// pending: this call of mount has recorded its target, and nothing else is done for it.
func (q *question) pending() {
	q.t.Publish, q.t.Bound = volstate.None, false
	q.took(RecordTarget, dirA)
	q.see(TheDir, dirA, Seen{Mount: NotMounted})
	q.see(TheTarget, dirA, Seen{Mount: NotMounted})
	q.see(ThePod, dirA, Seen{Pod: PodState{Known: true, Volumes: true, NoContainer: true}})
}

// empty: the record has no target, and the volume is not staged.
func (q *question) empty() {
	q.pending()
	clear(q.op.taken)
	q.r.Targets = map[string]*volstate.Target{}
	q.unstaged()
}

func (q *question) unstaged() {
	q.r.Stage, q.r.StagingPath, q.r.StageMounted = volstate.None, "", false
	q.see(TheStage, "", Seen{Mount: NotMounted})
}

// unclear: nothing is left but a stage that may be the kubelet's to end.
func (q *question) unclear() {
	q.empty()
	q.r.Stage, q.r.StagingPath, q.r.StageMounted, q.r.Owner = volstate.Done, stagingDir, true, volstate.Unclear
}

func (q *question) attached(p volstate.Phase, by string) {
	q.r.Attach, q.r.Attachment, q.r.NodeID = p, by, "node"
}

func (q *question) attachedByCluster(p volstate.Phase, by string) {
	q.attached(p, by)
	q.r.Object = "csi-0"
	q.driver.Route, q.driver.CanCluster = ByVolumeAttachment, true
}

// died: the CSI driver was restarted, before any container of pod a was made.
func (q *question) died() {
	for _, at := range []Fact{{TheDir, dirA}, {TheTarget, dirA}} {
		q.o.Facts[at] = Seen{Mount: Dead, Err: errDead}
	}
	q.see(ThePod, dirA, Seen{Pod: PodState{Known: true, Volumes: true, NoContainer: true}})
}

func (q *question) pluginHas() {
	q.see(ThePlugin, "", Seen{Plugin: PluginState{Pods: true, Staged: true, Mounted: true, Since: now()}})
}

func (q *question) away(what FactKind, dir string) { q.see(what, dir, Seen{Err: errAway}) }

func (q *question) hasTable(t Table) { q.table = &t }

func (q *question) otherVolume() { q.op.Volume.Name, q.op.Volume.FSType = "b", "xfs" }

var noAnswer = Seen{Mount: Silent, Err: errAway}

func scenes() []scene {
	return append(append(mountScenes(), unmountScenes()...), append(append(reconcileScenes(), deviceScenes()...), expandScenes()...)...)
}

func mountScenes() []scene {
	return []scene{
		{"given-up-before", "nothing is begun for a caller that has left", func(q *question) {
			q.empty()
			q.o.Awaited = false
		}, Refuse, "had left"},
		{"unmounted-meanwhile", "what was unmounted without the daemon is unpublished before it is published again", func(q *question) {
			q.see(ThePendingUnmount, dirA, Seen{Yes: true})
			q.see(TheDir, dirA, Seen{Mount: NotMounted})
		}, Unbind, ""},
		{"start-over", "a configuration that was put right holds at once, where no pod has the volume", func(q *question) {
			q.unclear()
			q.r.Stage, q.r.Owner, q.op.Volume.FSType = volstate.Doing, volstate.Ours, "xfs"
		}, NodeUnstage, ""},
		{"ready", "what is mounted and works is not touched", func(*question) {}, Done, ""},
		{"ready", "a mount with the other read-only flag is not the one that was asked for", func(q *question) { q.t.ReadOnly = true }, Refuse, "read-only=true"},
		{"ready", "a mount that does not answer is no success", func(q *question) { q.see(TheDir, dirA, noAnswer) }, Refuse, "does not answer"},
		{"stage-silent", "nothing is begun for another pod on a stage that does not answer", func(q *question) {
			q.goal(Mount, dirB)
			q.see(TheStage, "", noAnswer)
		}, Refuse, "does not answer"},
		{"stage-dead-in-use", "the error names the pods that keep a dead stage", func(q *question) {
			q.goal(Mount, dirB)
			q.see(TheStage, "", Seen{Mount: Dead, Err: errDead})
		}, Refuse, "delete these pods, and it is staged again: n/a"},
		{"unbind-unseen", "what a caller did not wait for is not left mounted: the kubelet forgets a mount that failed", func(q *question) {
			q.pending()
			q.t.Publish, q.t.Bound, q.o.Awaited = volstate.Done, true, false
			q.took(Bind, dirA)
			q.see(TheDir, dirA, Seen{Mount: Alive})
		}, Unbind, ""},
		{"no-route", "a volume is not staged where it cannot be attached", func(q *question) {
			q.pending()
			q.driver.Route, q.driver.RouteErr = ByControllerService, errAway
		}, Fail, "away"},
		{"detach-first", "a VolumeAttachment that is being deleted is not taken for a new one", func(q *question) {
			q.pending()
			q.unstaged()
			q.attachedByCluster(volstate.Undoing, byNode)
		}, DeleteAttachment, ""},
		{"stages-no-more", "what an older version of the driver may have staged is unstaged", func(q *question) {
			q.pending()
			q.r.Stage, q.driver.Features.Stage = volstate.Doing, false
		}, NodeUnstage, ""},
		{"target-silent", "what was published and does not answer is left as it is", func(q *question) {
			q.pending()
			q.t.Publish = volstate.Done
			q.see(TheTarget, dirA, noAnswer)
		}, Refuse, "does not answer"},
		{"target-dead", "what was published and is dead is not bound", func(q *question) {
			q.pending()
			q.died()
			q.t.Publish = volstate.Done
			q.see(ThePod, dirA, Seen{Pod: PodState{Known: true, Volumes: true}})
		}, Unbind, ""},
		{"pod-gone", "nothing is published for a pod that is gone", func(q *question) {
			q.pending()
			q.see(ThePod, dirA, Seen{Pod: PodState{Known: true}})
		}, Fail, "the pod was deleted"},
		{"unstage-not-ours", "a dead stage that the kubelet's CSI plugin has, too, is not unstaged", func(q *question) {
			q.pending()
			q.see(TheStage, "", Seen{Mount: Dead, Err: errDead})
			q.pluginHas()
		}, ForgetStage, ""},
		{"unstage-elsewhere", "a stage of our own is not forgotten because the plugin has another one", func(q *question) {
			q.pending()
			q.r.StagingPath = ownDir
			q.see(TheStage, "", Seen{Mount: Dead, Err: errDead})
			q.pluginHas()
		}, Fail, "is unstaged when the pods"},
	}
}

func unmountScenes() []scene {
	return []scene{
		{"unmount-completed", "a pending unmount that is gone takes nothing from the mount that goes on", func(q *question) {
			q.pending()
			clear(q.op.taken)
			q.t.Publish = volstate.Doing
			q.goal(CompleteUnmount, dirA)
		}, Done, ""},
		{"let-pod-go", "a pod does not stay Terminating since its volume cannot be unstaged", func(q *question) {
			q.pending()
			q.goal(Unmount, dirA)
			q.r.Stage = volstate.Undoing
			q.op.Failures = []Failure{{Step: Step{Kind: NodeUnstage, Dir: ""}, Class: Final, Err: errAway}}
		}, Drop, ""},
		{"note-owner", "who ends the volume is written down while it is still mounted", func(q *question) { q.goal(Unmount, dirA) }, NoteOwner, ""},
		{"grow-unused", "a volume that grows only unused does so after its last pod", func(q *question) {
			q.pending()
			q.unstaged()
			q.goal(Unmount, dirA)
			q.took(NoteOwner, dirA)
			q.took(Unbind, dirA)
			q.r.Expand, q.driver.Features.ControllerExpand = volstate.Doing, true
		}, ControllerExpand, ""},
		{"still-published", "no table that hands over here unstages under a mount", func(q *question) { q.hasTable(unstageTable()) }, Fail, "still published"},
		{"still-staged", "no table that hands over here detaches under a stage", func(q *question) {
			q.attached(volstate.Done, byNode)
			q.hasTable(detachTable(AsConfigured))
		}, Fail, "still staged"},
	}
}

func reconcileScenes() []scene {
	at := func(set func(*question)) func(*question) {
		return func(q *question) {
			q.goal(Reconcile, "")
			q.op.Volume = nil
			set(q)
		}
	}
	detach := func(q *question) {
		q.empty()
		q.attachedByCluster(volstate.Undoing, byNode)
	}
	return []scene{
		{"finish-detach", "a detach that was begun does not wait for the grace period", at(detach), DeleteAttachment, ""},
		{"repair-failed", "a detach that fails is not tried again in the same look", at(func(q *question) {
			detach(q)
			q.op.Failures = []Failure{{Step: Step{Kind: DeleteAttachment}, Class: GoesOn, Err: errAway}}
		}), Refuse, "away"},
		{"unclear-ended", "what the plugin has unstaged is not unstaged once more, and is detached at once", at(func(q *question) {
			q.unclear()
			q.see(TheStage, "", Seen{Mount: NotMounted})
		}), ForgetStage, ""},
		{"unclear-file", "a file that no kubelet knows goes with the stage", at(func(q *question) {
			q.unclear()
			q.r.Changed = timeOf(stale)
			q.see(ThePlugin, "", Seen{Plugin: PluginState{Staged: true, Mounted: true, Since: timeOf(stale)}})
		}), RemoveVolData, ""},
		{"grow-unused-later", "a volume that grows only unused does so after a detach that took its time", at(func(q *question) {
			q.empty()
			q.took(DeleteAttachment, "")
			q.r.Expand, q.driver.Features.ControllerExpand = volstate.Doing, true
		}), ControllerExpand, ""},
		{"note-ailments", "a mount is seen dead twice before it is replaced", at((*question).died), NoteAilments, ""},
		{"noted-just-now", "and not twice in one look", at(func(q *question) {
			q.died()
			q.t.Dead = deadText
			q.took(NoteAilments, "")
		}), Done, ""},
		{"repair-unknown", "nothing is taken away that cannot be brought again", at(func(q *question) {
			q.died()
			q.t.Dead = deadText
			q.away(TheDriver, "")
		}), Refuse, "away"},
		{"republish", "tokens are renewed", at(func(q *question) { q.see(TheTurn, dirA, Seen{Yes: true}) }), Republish, ""},
	}
}

func deviceScenes() []scene {
	return []scene{
		{"disagree", "mountdevice of another PersistentVolume with the handle", func(q *question) {
			q.goal(MountDevice, deviceDir)
			q.otherVolume()
		}, Refuse, "all its users must agree"},
		{"disagree", "attach of another PersistentVolume with the handle", func(q *question) {
			q.goal(Attach, "")
			q.otherVolume()
		}, Refuse, "all its users must agree"},
		{"other-device", "a second device mount path does not replace the first one in the record", func(q *question) {
			q.goal(MountDevice, deviceDir)
			q.r.Device = deviceDir + "2"
		}, Refuse, "one of them can be on a node"},
		{"mark", "without a mount there the kubelet never calls unmountdevice", func(q *question) {
			q.empty()
			q.goal(MountDevice, deviceDir)
		}, PlaceMarker, ""},
		{"unseen-target", "a mount that failed does not keep unmountdevice", func(q *question) {
			q.pending()
			clear(q.op.taken)
			q.r.Device = deviceDir
			q.goal(UnmountDevice, deviceDir)
		}, NoteOwner, ""},
		{"device-in-use", "the error says that unmount comes first", func(q *question) {
			q.r.Device = deviceDir
			q.goal(UnmountDevice, deviceDir)
		}, Refuse, "unmount comes before unmountdevice"},
		{"kubelet-has-ended-it", "unmountdevice succeeds once the plugin has unstaged the volume", func(q *question) {
			q.unclear()
			q.see(TheStage, "", Seen{Mount: NotMounted})
			q.r.Device = deviceDir
			q.goal(UnmountDevice, deviceDir)
		}, ForgetStage, ""},
		{"detach-device", "unmountdevice detaches what no callout detaches", func(q *question) {
			q.empty()
			q.attachedByCluster(volstate.Doing, byControlPlane)
			q.goal(UnmountDevice, deviceDir)
			q.took(RemoveMarker, deviceDir)
		}, DeleteAttachment, ""},
		{"driver-away", "attach is not begun without the driver", func(q *question) {
			q.empty()
			q.goal(Attach, "")
			q.away(TheDriver, "")
		}, Refuse, "away"},
		{"no-pod", "a volume is attached only for a pod of this node", func(q *question) {
			q.empty()
			q.goal(Attach, "")
			q.away(TheClaim, "")
		}, Refuse, "away"},
		{"detach-in-use", "a volume is not detached between a pod's claim and its stage", func(q *question) {
			q.pending()
			q.unstaged()
			clear(q.op.taken)
			q.attached(volstate.Done, byControlPlane)
			q.goal(Detach, "")
		}, Refuse, "still in use"},
		{"forgotten-device", "detach ends a stage that the kubelet forgot in a reboot", func(q *question) {
			q.unclear()
			q.r.Owner, q.r.Device = volstate.Ours, deviceDir
			q.attached(volstate.Done, byControlPlane)
			q.goal(Detach, "")
		}, NodeUnstage, ""},
	}
}

func expandScenes() []scene {
	at := func(f Seen, set func(*question)) func(*question) {
		return func(q *question) {
			q.goal(Expand, dirA)
			q.see(TheSize, dirA, f)
			set(q)
		}
	}
	grows := func(q *question) { q.driver.Features.ControllerExpand = true }
	nothing := func(*question) {}
	return []scene{
		{"not-writable", "a read-only mount is not grown", at(Seen{Filesystem: 1}, func(q *question) {
			grows(q)
			q.t.ReadOnly = true
		}), Refuse, "not mounted for writing"},
		{"driver-away", "a driver that is away is none that expands nothing", at(Seen{Filesystem: 1}, func(q *question) { q.away(TheDriver, "") }), Refuse, "away"},
		{"size-unknown", "a size that is not known is not the wanted one", at(Seen{Err: errAway}, nothing), Refuse, "is not known"},
		{"nominal", "a filesystem without a device, as NFS, keeps no pod from starting", at(Seen{Filesystem: 1}, nothing), NoteExpanded, ""},
		{"unproven", "the error says how to start the pods again", at(Seen{Filesystem: 1, Device: 1}, nothing), Refuse, "set spec.capacity.storage"},
		{"note-expanded", "the next pod's expandfs has nothing to do", at(Seen{Filesystem: 2}, func(q *question) {
			grows(q)
			q.took(ControllerExpand, "")
		}), NoteExpanded, ""},
	}
}

// ask returns the answer, and whether it is as it has to be.
func (s scene) ask(p Planner) (got Step, right bool) {
	q := usual()
	s.set(q)
	if q.table == nil {
		got = p.Next(q.r, q.op, q.o)
	} else if step := p.decide(&situation{record: q.r, op: q.op, observed: q.o, dir: q.op.Dir}, *q.table); step != nil {
		got = *step
	}
	right = got.Kind == s.kind && (s.says == "") == (got.Err == nil)
	return got, right && (got.Err == nil || strings.Contains(got.Err.Error(), s.says))
}

// TestScenes: each answer is right, and wrong without the rule.
func TestScenes(t *testing.T) {
	for _, s := range scenes() {
		t.Run(s.rule, func(t *testing.T) {
			if got, right := s.ask(Planner{}); !right {
				t.Errorf("%s: want %s %q, got %+v", s.sentence, s.kind, s.says, got)
			}
			if got, right := s.ask(without(s.rule)); right {
				t.Errorf("%s: the answer is the same without the rule, by %s", s.sentence, got.Rule)
			}
		})
	}
}
