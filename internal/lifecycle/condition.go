package lifecycle

import (
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A situation is what rules decide by: the record, the operation, what was observed, and
// the target that they are asked for.
type situation struct {
	record   *volstate.Record
	op       *Operation
	observed *Observed
	dir      string
}

// at is the situation with another target.
func (s *situation) at(dir string) *situation {
	other := *s
	other.dir = dir
	return &other
}

// target is nil if the record has none at the directory.
func (s *situation) target() *volstate.Target { return s.record.Targets[s.dir] }

// An answer is what a condition says: it holds, it does not, or a fact is missing that has
// to be observed first.
type answer struct {
	holds   bool
	missing *Fact
}

// look asks for the fact that is missing; nil: none is.
func (a answer) look() *Step {
	if a.missing == nil {
		return nil
	}
	return &Step{Kind: Look, Fact: *a.missing}
}

func is(holds bool) answer { return answer{holds: holds} }

// A condition is a predicate of a situation. It says by itself which fact it needs, and is
// never decided without it.
type condition func(*situation) answer

// all holds if each of the conditions does. The facts of those after the first that does
// not hold are not needed.
func all(conditions ...condition) condition {
	return func(s *situation) answer {
		for _, c := range conditions {
			if a := c(s); !a.holds {
				return a
			}
		}
		return is(true)
	}
}

// either holds if any of the conditions does.
func either(conditions ...condition) condition {
	return func(s *situation) answer {
		for _, c := range conditions {
			if a := c(s); a.holds || a.missing != nil {
				return a
			}
		}
		return is(false)
	}
}

func not(c condition) condition {
	return func(s *situation) answer {
		a := c(s)
		a.holds = !a.holds && a.missing == nil
		return a
	}
}

// targets selects targets by their directories. As a condition it may need a fact.
type targets func(*situation) (dirs []string, missing *Fact)

// everyTarget is in an order that never changes.
func everyTarget(s *situation) ([]string, *Fact) { return sortedDirs(s.record), nil }

// noTarget holds if the condition holds for none of the targets.
func noTarget(c condition) condition {
	return func(s *situation) answer {
		for _, dir := range sortedDirs(s.record) {
			if a := c(s.at(dir)); a.holds || a.missing != nil {
				return answer{missing: a.missing}
			}
		}
		return is(true)
	}
}

// sees is what a fact says, of the target or of the volume.
func sees(what FactKind, holds func(*situation, Seen) bool) condition {
	return func(s *situation) answer { return s.seesAt(s.fact(what), holds) }
}

func (s *situation) seesAt(f Fact, holds func(*situation, Seen) bool) answer {
	seen, observed := s.observed.Facts[f]
	if !observed {
		missing := f // f itself would be allocated for each fact that was observed, too
		return answer{missing: &missing}
	}
	return is(holds(s, seen))
}

// fact is the one of the target, or of the volume.
func (s *situation) fact(what FactKind) Fact {
	switch what {
	case TheDriver, ThePlugin, TheStage, TheDevice, TheAttachment, TheSecrets, TheClaim:
		return Fact{What: what}
	}
	return Fact{What: what, Dir: s.dir}
}

// seen is a fact that a condition of the rule has asked for.
func (s *situation) seen(what FactKind) Seen { return s.seenAt(s.fact(what)) }

func (s *situation) seenAt(f Fact) Seen {
	if seen, observed := s.observed.Facts[f]; observed {
		return seen
	}
	return Seen{Err: flex.Errorf(flex.CodeInternal, "%s was not observed: this is a bug", f.What)}
}

// says holds for a fact that is true.
func says(what FactKind) condition {
	return sees(what, func(_ *situation, seen Seen) bool { return seen.Yes })
}

// objects holds for a fact that is an error.
func objects(what FactKind) condition {
	return sees(what, func(_ *situation, seen Seen) bool { return seen.Err != nil })
}

// errorOf is that of a fact.
func errorOf(what FactKind) func(*situation) error {
	return func(s *situation) error { return s.seen(what).Err }
}

// mountIs holds if what is mounted is in one of the states.
func mountIs(what FactKind, states ...MountState) condition {
	return sees(what, func(_ *situation, seen Seen) bool { return slices.Contains(states, seen.Mount) })
}

func isMounted(what FactKind) condition { return mountIs(what, Alive, Dead, Silent) }

// stageIs holds if what is mounted at the staging path is in one of the states.
func stageIs(states ...MountState) condition {
	mounted := mountIs(TheStage, states...)
	return func(s *situation) answer {
		if s.record.StagingPath == "" {
			return is(slices.Contains(states, NotMounted))
		}
		return mounted(s)
	}
}

// tookForTarget holds if this operation has taken a step for the target.
func tookForTarget(k StepKind) condition {
	return func(s *situation) answer { return is(s.op.took(k, s.dir)) }
}

// tookForVolume holds if this operation has taken a step for the volume.
func tookForVolume(k StepKind) condition {
	return func(s *situation) answer { return is(s.op.took(k, "")) }
}

func goalIs(goals ...Goal) condition {
	return func(s *situation) answer { return is(slices.Contains(goals, s.op.Goal)) }
}

func callerWaits(s *situation) answer    { return is(s.observed.Awaited) }
func operationBegun(s *situation) answer { return is(s.op.hasBegun()) }
func operationFailed(s *situation) answer {
	return is(len(s.op.Failures) > 0)
}

func hasTarget(s *situation) answer     { return is(s.target() != nil) }
func hasTargets(s *situation) answer    { return is(len(s.record.Targets) > 0) }
func hasTargetPath(s *situation) answer { return is(s.target().TargetPath != "") }
func targetBound(s *situation) answer   { return is(s.target().Bound) }

// targetIs holds if the target is in one of the phases.
func targetIs(phases ...volstate.Phase) condition {
	return func(s *situation) answer { return is(slices.Contains(phases, s.target().Publish)) }
}

// stagePhaseIs holds if the stage is in one of the phases.
func stagePhaseIs(phases ...volstate.Phase) condition {
	return func(s *situation) answer { return is(slices.Contains(phases, s.record.Stage)) }
}

// attachIs holds if the attachment is in one of the phases.
func attachIs(phases ...volstate.Phase) condition {
	return func(s *situation) answer { return is(slices.Contains(phases, s.record.Attach)) }
}

func ownerIs(owners ...volstate.Owner) condition {
	return func(s *situation) answer { return is(slices.Contains(owners, s.record.Owner)) }
}

func hasDevice(s *situation) answer              { return is(s.record.Device != "") }
func hasObject(s *situation) answer              { return is(s.record.Object != "") }
func attachmentUnmanaged(s *situation) answer    { return is(s.record.Unmanaged) }
func attachedByControlPlane(s *situation) answer { return is(s.record.Attachment == byControlPlane) }

// anyPublished holds if any target is, or may be, published.
func anyPublished(s *situation) answer {
	for _, t := range s.record.Targets {
		if t.Publish != volstate.None {
			return is(true)
		}
	}
	return is(false)
}

// driverFacts are those that a condition has asked for; none of a driver that is unavailable.
func (s *situation) driverFacts() *DriverFacts {
	if d := s.seen(TheDriver).Driver; d != nil {
		return d
	}
	return &DriverFacts{}
}

// driverHas is a condition on what the driver can do.
func driverHas(holds func(*DriverFacts) bool) condition {
	return sees(TheDriver, func(s *situation, _ Seen) bool { return holds(s.driverFacts()) })
}

func canStage(d *DriverFacts) bool            { return d.Features.Stage }
func canControllerExpand(d *DriverFacts) bool { return d.Features.ControllerExpand }
func canNodeExpand(d *DriverFacts) bool       { return d.Features.NodeExpand }

// graceOver reports whether something has been so for the grace period.
func (s *situation) graceOver(since time.Time) bool {
	return s.observed.Now.Sub(since) >= s.observed.Grace
}
