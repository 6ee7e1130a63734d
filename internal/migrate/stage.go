package migrate

import (
	"context"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// A Step is what is done to come to a stage.
type Step struct {
	Stage journal.Stage `json:"stage"`
	Does  string        `json:"does"`
	// Request is what is asked of the API server; empty: nothing is changed.
	Request string `json:"request,omitempty"`
}

// A stage is a row of the table below. Plan tells its steps from there, apply, resume and
// rollback take them.
type stage struct {
	name journal.Stage
	// pv is which PersistentVolume there is at the stage.
	pv presence
	// do takes a volume from the stage before to this one, and waits until that is so. It looks at
	// the cluster first, so that it can be repeated, by this process or by another one. Then the
	// stage is written down (take).
	do func(*migration, context.Context) error
	// plan says what do does, and by which request; nothing where there is nothing to do.
	plan func(v *PlannedVolume, r *rendered) (does, request string)
	// applies reports whether a volume comes through the stage; nil: each does.
	applies func(course) bool
}

// A presence says which PersistentVolume there is.
type presence int

const (
	oldVolume presence = iota + 1
	noVolume           // or the old one is about to go: the window
	newVolume
)

// stages are all of them, in their order. Stopped is there twice: a person stops the pods
// before the volume is deleted, and flex2csi after that, when their successors cannot start.
func stages() []stage {
	return []stage{
		{journal.BackedUp, oldVolume, (*migration).backUp, planBackUp, nil},
		{journal.Retained, oldVolume, (*migration).retain, planRetain, nil},
		{journal.Stopped, oldVolume, (*migration).waitForNoPods, planWaitForNoPods, course.stopsBefore},
		{journal.Accepted, oldVolume, (*migration).accept, planAccept, nil},
		{journal.Deleting, noVolume, (*migration).deleteOld, planDelete, nil},
		{journal.Deleted, noVolume, (*migration).removeOld, planRemove, nil},
		{journal.Stopped, noVolume, (*migration).stopPods, planStop, course.stopsBetween},
		{journal.Created, newVolume, (*migration).createNew, planCreate, nil},
		{journal.Bound, newVolume, (*migration).bind, planBind, nil},
		{journal.Attached, newVolume, (*migration).waitForAttachments, planAttach, course.adopts},
		{journal.TakenOver, newVolume, (*migration).waitForMounts, planTakeOver, course.waitsForPods},
		{journal.Finished, newVolume, (*migration).finish, planFinish, nil},
	}
}

// A course is what the stages of a volume depend on.
type course struct {
	mode      journal.Mode
	direction journal.Direction
	attaches  bool // the CSI driver's volumes are attached
	pods      bool // there are any
	running   bool // one of them is on a node
	putBack   bool // what there was is put back, and pods notice nothing
}

// handsOver: the volume has running pods, which go on.
func (c course) handsOver() bool { return c.mode == journal.Live && c.running }

// adopts: the control plane adopts what is attached.
func (c course) adopts() bool {
	return c.direction == journal.ToCSI && c.attaches && c.handsOver()
}

func (c course) waitsForPods() bool {
	return !c.putBack && (c.handsOver() || (c.mode == journal.Rolling && c.pods))
}

// stopsBefore: a person stops the pods while the old volume is there.
func (c course) stopsBefore() bool { return c.mode == journal.Offline }

// stopsBetween: flex2csi stops them when it is gone.
func (c course) stopsBetween() bool { return c.mode == journal.Rolling && !c.putBack }

func courseOf(rec *journal.Record) course {
	return course{
		mode: rec.Mode, direction: rec.Direction, attaches: rec.Attaches, pods: len(rec.Pods) > 0, putBack: rec.PutBack != "",
		running: slices.ContainsFunc(rec.Pods, func(p journal.Pod) bool { return p.Node != "" }),
	}
}

func coursePlanned(v *PlannedVolume, attaches bool) course {
	mode := map[Method]journal.Mode{Live: journal.Live, PodRestart: journal.Rolling, Offline: journal.Offline}[v.Method]
	return course{
		mode: mode, direction: journal.ToCSI, attaches: attaches, pods: len(v.Pods) > 0,
		running: slices.ContainsFunc(v.Pods, func(p Pod) bool { return p.Node != "" }),
	}
}

// takes reports whether a course comes through a stage.
func (c course) takes(s stage) bool { return s.applies == nil || s.applies(c) }

// indexOf returns the row of the stage that a record has come to; -1: none. The mode may have
// changed since, so that the row of the name need not apply any more.
func indexOf(rec *journal.Record) int {
	found, c := -1, courseOf(rec)
	for i, s := range stages() {
		if s.name != rec.Stage {
			continue
		}
		if found = i; c.takes(s) {
			break
		}
	}
	return found
}

// presenceAt returns which PersistentVolume there is at the stage of a record; zero: it has none.
func presenceAt(rec *journal.Record) presence {
	if i := indexOf(rec); i >= 0 {
		return stages()[i].pv
	}
	return 0
}

// next returns the stage that comes after the one that was reached.
func next(rec *journal.Record) stage {
	left := stages()[indexOf(rec)+1:]
	return left[slices.IndexFunc(left, courseOf(rec).takes)]
}

// steps returns those of a volume of which there is a replacement.
func steps(v *PlannedVolume, r *rendered, attaches bool) (all []Step) {
	c := coursePlanned(v, attaches)
	for _, s := range stages() {
		if !c.takes(s) {
			continue
		}
		if does, request := s.plan(v, r); does != "" {
			all = append(all, Step{s.name, does, request})
		}
	}
	return all
}

func pvPath(v *PlannedVolume) string { return "persistentvolumes/" + v.Name }

func planBackUp(*PlannedVolume, *rendered) (does, request string) {
	return "write the PersistentVolume, its claim, its VolumeAttachments and its pods' owners to the journal, and the replacement", "create configmaps/flex2csi-migration-… in flex2csi"
}

func planRetain(v *PlannedVolume, _ *rendered) (does, request string) {
	does = "make sure that nothing deletes what is stored, and read that back"
	if v.Original.ReclaimPolicy != policyRetain {
		request = "patch " + pvPath(v) + " (persistentVolumeReclaimPolicy: Retain)"
	}
	return does, request
}

func planWaitForNoPods(*PlannedVolume, *rendered) (does, request string) {
	return "wait until no pod uses the claim and no node has the volume: a person stops them", ""
}

func planAccept(v *PlannedVolume, _ *rendered) (does, request string) {
	return "look at all of this once more, and have the API server accept the replacement as a dry run", "create " + pvPath(v) + " (dry run)"
}

func planDelete(v *PlannedVolume, _ *rendered) (does, request string) {
	return "delete the PersistentVolume, which stays until its finalizers are gone", "delete " + pvPath(v) + " (uid " + v.Original.UID + ", and its resourceVersion)"
}

func planRemove(v *PlannedVolume, r *rendered) (does, request string) {
	return "take away " + list(r.removed) + "; from here the claim is Lost", "patch " + pvPath(v) + " (uid, resourceVersion, metadata.finalizers)"
}

func planStop(v *PlannedVolume, _ *rendered) (does, request string) {
	return "evict the pod (its successor waits for the claim), and wait until its node has let go of the volume", "create pods/eviction " + first(v.Pods).Name
}

func planCreate(v *PlannedVolume, _ *rendered) (does, request string) {
	return "create the replacement of the same name", "create " + pvPath(v)
}

func planBind(v *PlannedVolume, _ *rendered) (does, request string) {
	if v.Original.Phase != "Bound" {
		return "", ""
	}
	return "have the volume controller look at the claim at once, which it does when that changes and else every 15 s, and wait until it is Bound", "patch persistentvolumeclaims " + v.Claim + " (annotation " + MigratedLabel + ")"
}

func planAttach(*PlannedVolume, *rendered) (does, request string) {
	return "wait until the control plane has adopted the VolumeAttachments", ""
}

func planTakeOver(v *PlannedVolume, _ *rendered) (does, request string) {
	if v.Method == PodRestart {
		return "wait until the pod that comes after it is Ready", ""
	}
	return "wait until the kubelet of each pod has mounted it through its CSI plugin, next to the old mount", ""
}

func planFinish(v *PlannedVolume, _ *rendered) (does, request string) {
	var all []string
	if v.Original.ReclaimPolicy != policyRetain {
		all = append(all, "patch "+pvPath(v)+" (only with --restore-reclaim-policy)")
	}
	if v.Original.Phase == "Bound" {
		all = append(all, "patch persistentvolumeclaims "+v.Claim+" (without that annotation)")
	}
	return "compare with what there was; restore the reclaim policy if that was decided", strings.Join(all, "; ")
}

func first(pods []Pod) Pod {
	if len(pods) == 0 {
		return Pod{}
	}
	return pods[0]
}
