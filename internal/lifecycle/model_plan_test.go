package lifecycle

import (
	"errors"
	"fmt"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// How the model asks the planner: by the real Next, Intend and Conclude.

// An op is the operation that a daemon is at: an Operation in a few bytes, and the
// step that is decided and not taken.
type op struct {
	goal          uint8 // of goals; 0: none
	dir           uint8 // of places
	awaited       bool
	attachedAsCSI bool
	nodeGrow      bool
	taken         [placeCount]uint64 // kinds
	failures      [3]failing
	failed        uint8
	step          doing
	endless       bool // more has failed than can be kept
	begun         bool // something of the step goes on without the daemon
	before        bool // something was attached, or was about to be, before the step
}

// A failing is a Failure.
type failing struct{ kind, place, class, code uint8 }

// A doing is a Step.
type doing struct {
	kind, place, rule uint8
	mayFail           bool
	keep              bool
	owner             uint8
}

// The places that a step is for.
const (
	podA uint8 = iota
	podB
	devicePlace
	noPlace
	placeCount
)

func goals() []Goal {
	return []Goal{"", Mount, Unmount, MountDevice, UnmountDevice, Attach, Detach, Expand, Reconcile, CompleteUnmount}
}

func kinds() []StepKind {
	return []StepKind{
		"", Done, Refuse, Fail, Look, RecordTarget, Drop, ForgetBind, NoteOwner, LeaveToKubelet, ForgetStage, ForgetAttachment,
		NoteAilments, NoteExpanded, ControllerPublish, ControllerUnpublish, AskAttachment, AwaitAttachment, DeleteAttachment,
		NodeStage, NodeUnstage, NodePublish, NodeUnpublish, Republish, ApplyFSGroup, Bind, Unbind, PlaceMarker, RemoveMarker,
		RemoveDead, Tidy, RemoveVolData, ControllerExpand, NodeExpand,
	}
}

func classes() []Class { return []Class{Final, Uncertain, GoesOn, NotBegun, Local} }

// The codes of errors that the planner tells apart.
const (
	otherCode uint8 = iota
	notFoundCode
	preconditionCode
)

func (m *model) place(i uint8) string {
	switch i {
	case podA, podB:
		return podDir(m.c, int(i))
	case devicePlace:
		return deviceDir
	}
	return ""
}

func (m *model) placeOf(dir string) uint8 {
	for i := range placeCount {
		if m.place(i) == dir {
			return i
		}
	}
	panic("no place: " + dir)
}

// observed returns what the planner is shown.
func (m *model) observed(o op, facts map[Fact]Seen) *Observed {
	return &Observed{Now: now(), Grace: grace, Awaited: o.awaited, KubeletDir: "/k", KubeletStaging: stagingDir, Facts: facts}
}

// operation returns the real one.
func (m *model) operation(o op) *Operation {
	real := &Operation{Wanted: m.wanted(o), AttachedAsCSI: o.attachedAsCSI, NodeExpansionRequired: o.nodeGrow}
	for place, bits := range o.taken {
		for i, kind := range m.kinds {
			if bits&(1<<i) != 0 {
				real.noteTaken(kind, m.place(uint8(place)))
			}
		}
	}
	for _, f := range o.failures[:o.failed] {
		real.Failures = append(real.Failures, m.failure(f))
	}
	return real
}

func (m *model) failure(f failing) Failure {
	code := flex.CodeInternal
	switch f.code {
	case notFoundCode:
		code = flex.CodeNotFound
	case preconditionCode:
		code = flex.CodeFailedPrecondition
	}
	return Failure{
		Step: Step{Kind: m.kinds[f.kind], Dir: m.place(f.place)}, Class: classes()[f.class],
		Err: &csivol.RPCError{Method: string(m.kinds[f.kind]), Code: code, Message: "no"},
	}
}

// keep writes back what Conclude has changed.
func (m *model) keep(o *op, real *Operation) {
	o.taken = [placeCount]uint64{}
	for step := range real.taken {
		o.taken[m.placeOf(step.Dir)] |= 1 << number(m.kinds, step.Kind)
	}
	o.attachedAsCSI, o.nodeGrow = real.AttachedAsCSI, real.NodeExpansionRequired
	if len(real.Failures) > len(o.failures) { // it goes on as if nothing had failed
		o.endless, real.Failures = true, real.Failures[:len(o.failures)]
	}
	o.failed = uint8(len(real.Failures))
	o.failures = [3]failing{}
	for i, f := range real.Failures {
		code := otherCode
		switch {
		case csivol.NotFound(f.Err):
			code = notFoundCode
		case csivol.FailedPrecondition(f.Err):
			code = preconditionCode
		}
		o.failures[i] = failing{number(m.kinds, f.Step.Kind), m.placeOf(f.Step.Dir), number(classes(), f.Class), code}
	}
}

func (m *model) wanted(o op) Wanted {
	w := Wanted{Goal: goals()[o.goal], Dir: m.place(o.dir)}
	switch w.Goal {
	case Mount, Expand:
		w.Volume = m.c.volumeOf(int(o.dir))
		if w.Goal == Expand {
			w.Size = 2
		}
	case MountDevice, Attach:
		w.Volume = m.c.volumeOf(0)
	}
	return w
}

// A snapshot is all that a decision depends on.
type snapshot struct {
	rec  rec
	op   op
	seen seen
}

// A decision is what came of asking the planner: a step to take, or the end.
type decision struct {
	rec     rec
	op      op
	durable bool
	ended   bool
	ok      bool
	rule    uint8
	circles bool // it was asked too often without a step that does something
}

// next asks the planner until there is something to do. What changes nothing but
// the record is done at once. Equal snapshots are decided once.
func (m *model) next(s snapshot) decision {
	if d, ok := m.decided[s]; ok {
		return d
	}
	d := m.ask(s)
	m.decided[s] = d
	return d
}

// ask counts a panic of the planner as if it went in circles.
func (m *model) ask(s snapshot) (d decision) {
	defer func() {
		if recover() != nil {
			d = decision{circles: true, ended: true}
		}
	}()
	return m.asked(s)
}

func (m *model) asked(s snapshot) decision {
	facts := m.facts(s.seen)
	if s.seen.renamed && goals()[s.op.goal] == Mount {
		facts[Fact{What: TheAttachment}] = Seen{Yes: true}
	}
	r, op, o := m.c.record(s.rec), m.operation(s.op), m.observed(s.op, nil)
	for range 40 {
		step := m.nextStep(r, op, o, facts)
		m.used[step.Rule] = true
		d := decision{op: s.op, rule: m.rule(step.Rule)}
		switch step.Kind {
		case Done, Refuse:
			m.keep(&d.op, op)
			d.rec, d.ended, d.ok = m.c.pack(r), true, step.Kind == Done
			return d
		case Fail:
			Conclude(r, step, op, o, StepResult{}, &Failure{Step: step, Class: Local, Err: step.Err})
		default:
			if s.seen.renamed && r.Object != "" && attaches(step.Kind) && !m.weak.attachesRenamed { // bridge/executor.go, particulars
				m.keep(&d.op, op)
				d.rec, d.ended = m.c.pack(r), true
				return d
			}
			d.op.before = r.Attach != volstate.None
			d.durable = Intend(r, step, op, o, Particulars{NodeID: "node", Object: "csi-0", StagingPath: m.c.stagingPath(), TargetPath: m.private(step.Dir)})
			if step.Kind == RecordTarget || step.Kind == PlaceMarker {
				m.adopt(r, s.seen, step.Dir)
			}
			if acts(step.Kind) || d.durable {
				m.keep(&d.op, op)
				d.op.step = doing{number(m.kinds, step.Kind), m.placeOf(step.Dir), d.rule, step.MayFail, step.Keep, number(owners(), step.Owner)}
				d.rec = m.c.pack(r)
				return d
			}
			Conclude(r, step, op, o, StepResult{}, nil)
		}
	}
	return decision{circles: true, ended: true}
}

// nextStep shows the planner the facts that it asks for, and no others.
func (m *model) nextStep(r *volstate.Record, op *Operation, o *Observed, facts map[Fact]Seen) Step {
	for {
		step := m.planner.Next(r, op, o)
		if step.Kind != Look {
			return step
		}
		seen, known := facts[step.Fact]
		if _, asked := o.Facts[step.Fact]; asked || !known {
			panic(fmt.Sprintf("rule %s wants to know %v", step.Rule, step.Fact))
		}
		if o.Facts == nil {
			o.Facts = map[Fact]Seen{}
		}
		o.Facts[step.Fact] = seen
	}
}

func (m *model) private(dir string) string {
	for i := range podCount {
		if dir == podDir(m.c, i) {
			return m.c.private(i)
		}
	}
	return ""
}

// conclude writes down what came of the step that was taken.
func (m *model) conclude(n *node, got StepResult, failed *failing) {
	r, op, o := m.c.record(n.mem), m.operation(n.op), m.observed(n.op, nil)
	step := Step{Kind: m.kinds[n.op.step.kind], Dir: m.place(n.op.step.place), MayFail: n.op.step.mayFail, Keep: n.op.step.keep, Owner: owners()[n.op.step.owner]}
	var f *Failure
	if failed != nil {
		real := m.failure(*failed)
		real.Step = step
		f = &real
	}
	Conclude(r, step, op, o, got, f)
	m.keep(&n.op, op)
	n.mem = m.c.pack(r)
	n.op.step, n.op.begun, n.op.before = doing{}, false, false
	n.renamed = n.renamed && n.mem.object
}

func attaches(k StepKind) bool {
	return k == ControllerPublish || k == AskAttachment || k == AwaitAttachment
}

// acts reports whether a step does something outside of the record. The end of a
// target is recorded before its pending unmount is removed.
func acts(k StepKind) bool {
	switch k {
	case RecordTarget, ForgetBind, NoteOwner, LeaveToKubelet, ForgetStage, ForgetAttachment, NoteAilments, NoteExpanded:
		return false
	}
	return true
}

func (m *model) rule(name string) uint8 {
	for i, known := range m.rules {
		if known == name {
			return uint8(i)
		}
	}
	m.rules = append(m.rules, name)
	return uint8(len(m.rules) - 1)
}

var (
	errDead = errors.New(deadText)
	errAway = flex.Errorf(flex.CodeUnavailable, "away")
)
