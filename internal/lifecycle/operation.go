package lifecycle

// An Operation brings a volume to a goal. It has what is wanted, and what was done for it
// until now.
type Operation struct {
	Wanted
	// taken are the steps that were taken with success, and not undone since.
	taken map[takenStep]bool
	// Failures are those of steps, the first one first.
	Failures []Failure
	// AttachedAsCSI: the control plane has the volume attached as a CSI volume, too,
	// and may detach it ([csivol.Attached]).
	AttachedAsCSI bool
	// NodeExpansionRequired is what ControllerExpandVolume has answered.
	NodeExpansionRequired bool
}

// A takenStep is a step that was taken for a target; without a directory for the volume.
type takenStep struct {
	Kind StepKind
	Dir  string
}

// took reports whether a step was taken, and not undone since.
func (op *Operation) took(k StepKind, dir string) bool { return op.taken[takenStep{k, dir}] }

// hasBegun reports whether any step was taken.
func (op *Operation) hasBegun() bool { return len(op.taken) > 0 }

func (op *Operation) noteTaken(k StepKind, dir string) {
	if op.taken == nil {
		op.taken = map[takenStep]bool{}
	}
	op.taken[takenStep{k, dir}] = true
}

func (op *Operation) forgetTaken(k StepKind, dir string) { delete(op.taken, takenStep{k, dir}) }

// forgetUndone forgets the steps that a step is the negation of, also if it has failed.
func (op *Operation) forgetUndone(by Step) {
	switch by.Kind {
	case NodeUnstage, ForgetStage:
		op.forgetTaken(NodeStage, "")
	case NodeUnpublish:
		op.forgetTaken(NodePublish, by.Dir)
		op.forgetTaken(ApplyFSGroup, by.Dir)
	case Bind:
		op.forgetTaken(Unbind, by.Dir)
	case AskAttachment:
		op.forgetTaken(DeleteAttachment, "")
	}
}

// firstFailure is why the operation fails; nil: it does not, or not yet.
func (op *Operation) firstFailure() *Failure {
	if len(op.Failures) == 0 {
		return nil
	}
	return &op.Failures[0]
}

// lastFailure is what the step before has come to; nil if nothing has failed.
func (op *Operation) lastFailure() *Failure {
	if len(op.Failures) == 0 {
		return nil
	}
	return &op.Failures[len(op.Failures)-1]
}

// A Failure is a step that did not succeed.
type Failure struct {
	Step  Step
	Class Class
	Err   error
}

// A Class is what is known of a step that has failed.
type Class string

// The classes.
const (
	// Final: the driver has refused, and nothing is going on.
	Final Class = "final"
	// Uncertain: the driver may have done it, or may still be at it.
	Uncertain Class = "uncertain"
	// GoesOn: the cluster goes on with what it was asked for.
	GoesOn Class = "goes on"
	// NotBegun: nothing was begun that would have to be undone.
	NotBegun Class = "not begun"
	// Local: an error of our own, before or after a request.
	Local Class = "local"
)
