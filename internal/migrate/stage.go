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

// A stage is one of the table below. Plan tells its steps from there, apply, resume and
// rollback take them.
type stage struct {
	name journal.Stage
	// applies reports whether a volume comes through it; nil: each does.
	applies func(course) bool
	// plan says what is done, and by which request; nothing where there is nothing to do.
	plan func(v *PlannedVolume, r *rendered) (does, request string)
	// do takes a volume from the stage before to this one, or further, and may be made again.
	// back is for the way back, where that is done otherwise.
	do, back func(*migration, context.Context) error
	// holds looks whether the stage is reached, and waits for that where it takes time. Until
	// then the stage is not written down. Where a stage has none, do writes it down itself: the
	// journal has to have it before the next request.
	holds func(*migration, context.Context) error
	// looked: the swap may have begun, so resume looks how far it is, and accepts it again.
	looked bool
	// window: there is no PersistentVolume, or it is about to be deleted.
	window bool
}

// stages are all of them, in their order. Stopped is there twice: a person stops the pods
// before the volume is deleted, and flex2csi after that, when their successors cannot start.
// The rows with replace are one loop (swap.go): each look decides which request is next, and
// the rows differ only in what plan says of them.
func stages() []stage {
	offline := func(c course) bool { return c.mode == journal.Offline }
	rolling := func(c course) bool { return c.mode == journal.Rolling }
	return []stage{
		{name: journal.BackedUp, looked: true, do: (*migration).backUp, plan: func(*PlannedVolume, *rendered) (string, string) {
			return "write the PersistentVolume, its claim, its VolumeAttachments and its pods' owners to the journal, and the replacement", "create configmaps/flex2csi-migration-… in flex2csi"
		}},
		{name: journal.Retained, looked: true, do: (*migration).retain, holds: (*migration).retained, plan: planRetain},
		{name: journal.Stopped, applies: offline, looked: true, holds: (*migration).empty, plan: func(*PlannedVolume, *rendered) (string, string) {
			return "wait until no pod uses the claim and no node has the volume: a person stops them", ""
		}},
		{name: journal.Accepted, looked: true, do: (*migration).accept, back: (*migration).acceptFlex, holds: (*migration).replaceable, plan: func(v *PlannedVolume, _ *rendered) (string, string) {
			return "look at all of this once more, and have the API server accept the replacement as a dry run", "create " + pvPath(v) + " (dry run)"
		}},
		// From here to Created one loop does all (replace); each of these stages is written by it,
		// not by take.
		{name: journal.Deleting, looked: true, window: true, do: (*migration).replace, plan: func(v *PlannedVolume, _ *rendered) (string, string) {
			return "delete the PersistentVolume, which stays until its finalizers are gone", "delete " + pvPath(v) + " (uid " + v.Original.UID + ", and its resourceVersion)"
		}},
		{name: journal.Deleted, looked: true, window: true, do: (*migration).replace, plan: func(v *PlannedVolume, r *rendered) (string, string) {
			return "take away " + list(r.removed) + "; from here the claim is Lost", "patch " + pvPath(v) + " (uid, resourceVersion, metadata.finalizers)"
		}},
		{name: journal.Stopped, applies: rolling, looked: true, window: true, do: (*migration).replace, plan: func(v *PlannedVolume, _ *rendered) (string, string) {
			return "evict the pod (its successor waits for the claim), and wait until its node has let go of the volume", "create pods/eviction " + first(v.Pods).Name
		}},
		{name: journal.Created, do: (*migration).replace, plan: func(v *PlannedVolume, _ *rendered) (string, string) {
			return "create the replacement of the same name", "create " + pvPath(v)
		}},
		{name: journal.Bound, holds: (*migration).bound, plan: planBind},
		{name: journal.Attached, applies: course.adopts, holds: (*migration).attached, plan: func(*PlannedVolume, *rendered) (string, string) {
			return "wait until the control plane has adopted the VolumeAttachments", ""
		}},
		{name: journal.TakenOver, applies: course.waitsForPods, holds: (*migration).takenOver, plan: planTakenOver},
		{name: journal.Finished, do: (*migration).finish, plan: planFinish},
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

// adopts: the control plane takes over what is attached.
func (c course) adopts() bool {
	return c.direction == journal.ToCSI && c.attaches && c.handsOver()
}

func (c course) waitsForPods() bool {
	return !c.putBack && (c.handsOver() || c.mode == journal.Rolling && c.pods)
}

// courseOf is that of a record.
func courseOf(rec *journal.Record) course {
	return course{
		mode: rec.Mode, direction: rec.Direction, attaches: rec.Attaches, pods: len(rec.Pods) > 0, putBack: rec.PutBack != "",
		running: slices.ContainsFunc(rec.Pods, func(p journal.Pod) bool { return p.Node != "" }),
	}
}

// coursePlanned is that of a volume of a plan.
func coursePlanned(v *PlannedVolume, attaches bool) course {
	mode := map[Method]journal.Mode{Live: journal.Live, PodRestart: journal.Rolling, Offline: journal.Offline}[v.Method]
	return course{
		mode: mode, direction: journal.ToCSI, attaches: attaches, pods: len(v.Pods) > 0,
		running: slices.ContainsFunc(v.Pods, func(p Pod) bool { return p.Node != "" }),
	}
}

// stagesOf are those through which a volume comes.
func stagesOf(c course) []stage {
	return slices.DeleteFunc(stages(), func(s stage) bool { return s.applies != nil && !s.applies(c) })
}

// reached is the stage that a record has come to; the zero one: none.
func reached(rec *journal.Record) stage {
	is := func(s stage) bool { return s.name == rec.Stage }
	for _, all := range [][]stage{stagesOf(courseOf(rec)), stages()} { // the mode may have changed since
		if i := slices.IndexFunc(all, is); i >= 0 {
			return all[i]
		}
	}
	return stage{}
}

// next is the stage that comes after the one that was reached.
func next(rec *journal.Record) stage {
	all, names := stagesOf(courseOf(rec)), map[journal.Stage]bool{}
	for _, s := range stages() { // those up to the one that was reached, if that applies or not
		if names[s.name] = true; s.name == rec.Stage {
			break
		}
	}
	if i := slices.IndexFunc(all, func(s stage) bool { return s.name == rec.Stage }); i >= 0 {
		return all[i+1]
	}
	if rec.Stage == journal.Planned {
		return all[0]
	}
	return all[slices.IndexFunc(all, func(s stage) bool { return !names[s.name] })]
}

// steps are those of a volume of which there is a replacement.
func steps(v *PlannedVolume, r *rendered, attaches bool) (all []Step) {
	for _, s := range stagesOf(coursePlanned(v, attaches)) {
		if does, request := s.plan(v, r); does != "" {
			all = append(all, Step{s.name, does, request})
		}
	}
	return all
}

func pvPath(v *PlannedVolume) string { return "persistentvolumes/" + v.Name }

func planRetain(v *PlannedVolume, _ *rendered) (does, request string) {
	does = "make sure that nothing deletes what is stored, and read that back"
	if v.Original.ReclaimPolicy != policyRetain {
		request = "patch " + pvPath(v) + " (persistentVolumeReclaimPolicy: Retain)"
	}
	return does, request
}

func planBind(v *PlannedVolume, _ *rendered) (does, request string) {
	if v.Original.Phase != "Bound" {
		return "", ""
	}
	return "have the volume controller look at the claim at once, which it does when that changes and else every 15 s, and wait until it is Bound", "patch persistentvolumeclaims " + v.Claim + " (annotation " + MigratedLabel + ")"
}

func planTakenOver(v *PlannedVolume, _ *rendered) (does, request string) {
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
