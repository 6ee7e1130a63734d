package lifecycle

import (
	"maps"
	"testing"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A weak says which condition of the executor (internal/bridge) does not hold.
type weak struct {
	writesAfterBind, believesUnwritten, leavesBind                           bool
	attachesRenamed, usesStale                                               bool
	leavesLostStage, leavesUnseenTargets, leavesOwnTarget, forgetsLostDevice bool
	recognizesNothing, trustsOldRecord                                       bool
}

// A weakness is a rule or a part of the executor with one condition less. TestSabotage takes
// whole rules out; a rule may do its work and still look at too little.
type weakness struct {
	says, config string
	set          func(m *model)
}

// blind has a rule, or a table, decide by what is not so: f changes its record and its observations.
func blind(rule string, f func(s *situation)) func(*model) {
	return func(m *model) {
		m.planner.instead[rule] = func(s *situation) *situation {
			other, observed := *s, *s.observed
			observed.Facts = maps.Clone(observed.Facts)
			other.record, other.observed = s.record.Clone(), &observed
			f(&other)
			return &other
		}
	}
}

// overlooks has a rule not see targets.
func overlooks(rule string, targets func(*volstate.Target) bool) func(*model) {
	return blind(rule, func(s *situation) {
		maps.DeleteFunc(s.record.Targets, func(dir string, t *volstate.Target) bool { return dir != s.dir && targets(t) })
	})
}

// believes has a rule see something else.
func believes(rule string, what FactKind, f func(*Seen)) func(*model) {
	return blind(rule, func(s *situation) {
		for fact, seen := range s.observed.Facts {
			if fact.What == what {
				f(&seen)
				s.observed.Facts[fact] = seen
			}
		}
	})
}

func uncertainTarget(t *volstate.Target) bool { return t.Publish != volstate.Done }

// certain has no part be uncertain: it is none then, and done with done.
func certain(p *volstate.Phase) {
	if *p != volstate.Done {
		*p = volstate.None
	}
}

func done(p *volstate.Phase) {
	if *p != volstate.None {
		*p = volstate.Done
	}
}

func weaknesses() []weakness {
	executor := func(f func(*weak)) func(*model) { return func(m *model) { f(&m.weak) } }
	return []weakness{
		{"mount writes its record after the bind", "full disk", executor(func(w *weak) { w.writesAfterBind = true })},
		{"an outcome that could not be written is believed", "full disk, callouts", executor(func(w *weak) { w.believesUnwritten = true })},
		{"a dead bind stays if its end cannot be written", "full disk, dead mounts", executor(func(w *weak) { w.leavesBind = true })},
		{"a new record says nothing of a lost stage", "lost records", executor(func(w *weak) { w.leavesLostStage = true })},
		{"lost targets are looked for by their directories", "lost targets", executor(func(w *weak) { w.leavesUnseenTargets = true })},
		{"the lost target of the call counts as not published", "lost records", executor(func(w *weak) { w.leavesOwnTarget = true })},
		{"unmountdevice of a lost volume succeeds", "lost records, device", executor(func(w *weak) { w.forgetsLostDevice = true })},
		{"what is bound is not recognized at the start", "one pod", executor(func(w *weak) { w.recognizesNothing = true })},
		{"the version before of a record is believed", "old record", executor(func(w *weak) { w.trustsOldRecord = true })},
		{"a node with another name asks for an attachment again", "renamed node", executor(func(w *weak) { w.attachesRenamed = true })},
		{"the VolumeAttachment of another machine is used", "re-created node", executor(func(w *weak) { w.usesStale = true })},
		{"no guard", "one pod", func(m *model) { m.guarding.never = true }},
		{"the guard is unmounted before its target", "one pod", func(m *model) { m.guarding.goesFirst = true }},

		{"last-target counts certain targets only", "two pods", overlooks("last-target", uncertainTarget)},
		{"unpublish takes an uncertain target for none", "one pod", blind("unpublish", func(s *situation) { certain(&s.target().Publish) })},
		{"unstage takes an uncertain stage for none", "one pod", blind("unstage the volume", func(s *situation) { certain(&s.record.Stage) })},
		{"controller-unpublish takes an uncertain attachment for none", "controller", blind("detach the volume", func(s *situation) { certain(&s.record.Attach) })},
		{"delete-attachment takes an uncertain attachment for none", "cluster", blind("detach the volume", func(s *situation) { certain(&s.record.Attach) })},
		{"detach-not-ours does not look at who has made the VolumeAttachment", "device, cluster", blind("detach-not-ours", func(s *situation) { s.record.Unmanaged = false })},
		{"stage takes an uncertain stage for staged", "one pod", blind("stage", func(s *situation) { done(&s.record.Stage) })},
		{"ready does not look at the mount", "dead mounts", believes("ready", TheDir, func(s *Seen) { s.Mount = Alive })},
		{"bind does not look at the mount", "dead targets", believes("bind", TheDir, func(s *Seen) { s.Mount = Alive })},
		{"attachment-lost does not look at the VolumeAttachment", "cluster, no stage", believes("attachment-lost", TheAttachment, func(s *Seen) { s.Yes = false })},
		{"pod-lives does not look at the filesystem", "migration", believes("pod-lives", ThePVState, func(s *Seen) { s.SameFilesystem = true })},
		{"unclear-late does not wait", "migration", blind("unclear-late", func(s *situation) { s.observed.Grace = 0 })},
		{"unclear-file does not wait", "migration", blind("unclear-file", func(s *situation) { s.observed.Grace = 0 })},
		{"other-stage takes two stages for one", "migration, own stage", blind("other-stage", func(s *situation) { s.observed.KubeletStaging = s.record.StagingPath })},
		{"disagree does not look at the fsType", "two volumes", blind("disagree", func(s *situation) { s.record.FSType = s.op.Volume.FSType })},
		{"repair-unpublish takes a silent mount for a dead one", "silence", believes("repair-unpublish", TheDir, func(s *Seen) {
			if s.Mount == Silent {
				s.Mount = Dead
			}
		})},
		{"repair-unpublish does not look at containers", "dead mounts, left", believes("repair-unpublish", ThePod, func(s *Seen) { s.Pod.NoContainer = true })},
		{"stage-silent does not wait for an answer", "silence", believes("stage-silent", TheStage, func(s *Seen) { s.Mount = Alive })},
		{"release-unwanted does not look at what is bound", "dead targets", blind("release-unwanted", func(s *situation) {
			for _, t := range s.record.Targets {
				t.Bound = false
			}
		})},
		{"release-unwanted-volume does not look at targets", "one pod", blind("release-unwanted-volume", func(s *situation) { clear(s.record.Targets) })},
		{"unproven does not look at the size", "expansion, node alone", believes("unproven", TheSize, func(s *Seen) { s.Filesystem = 2 })},
		{"unbind-unseen does not look whether a caller waits", "one pod", blind("unbind-unseen", func(s *situation) { s.observed.Awaited = true })},
	}
}

// TestWeakness: the model notices each.
func TestWeakness(t *testing.T) {
	for _, w := range weaknesses() {
		t.Run(w.says, func(t *testing.T) {
			t.Parallel()
			v := w.noticed()
			if v == nil {
				t.Fatalf("%s: nothing notices", w.says)
			}
			t.Logf("| %s | %s | %d | %s |", w.says, v.invariant.name, len(v.story), w.config)
		})
	}
}

// noticed is what the weakness breaks: in a story of its configuration, or in any.
func (w weakness) noticed() *violation {
	for _, s := range toldStories() {
		if s.config != w.config {
			continue
		}
		m := newModel(configOf(w.config))
		w.set(m)
		if _, v := m.tell(s); v != nil {
			return v
		}
	}
	m := newModel(configOf(w.config))
	m.most = 2 * mostShort
	w.set(m)
	return m.explore(m.c.short)
}
