// Package lifecycle decides what happens next in the life of a volume.
//
// [Planner.Next] is a pure function: it makes one [Step] of the record of a volume,
// of the operation that works on it, and of what was observed. It does no I/O, reads no clock and starts no
// goroutine. Its rules are tables (mount.go, unmount.go, device.go, expand.go,
// reconcile.go and repair.go): the first rule that applies says the step. make docs
// writes them to lifecycle.md (doc_tables.go).
//
// [Intend] and [Conclude] change a record, before a step and after it. What happened
// while no daemon was there is for [Reset], [Rebooted], [Recognize], [Doubt], [Recall]
// and [Found], a write that failed for [TakeBack]. No other code changes the state of a volume. internal/bridge takes the
// steps, and knows nothing of their order.
package lifecycle

import (
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A Goal is what a caller wants of a volume.
type Goal string

// The goals. Those of callouts have the names of these.
const (
	Attach        Goal = "attach"
	Detach        Goal = "detach"
	MountDevice   Goal = "mountdevice"
	UnmountDevice Goal = "unmountdevice"
	Mount         Goal = "mount"
	Unmount       Goal = "unmount"
	Expand        Goal = "expandfs"
	// Reconcile wants what pods have to have, and an end of what no pod wants any more.
	Reconcile Goal = "reconcile"
	// CompleteUnmount completes a pending unmount: flexdriver has unmounted a directory
	// while the daemon was down.
	CompleteUnmount Goal = "completeunmount"
)

// Wanted is a goal, and for what.
type Wanted struct {
	Goal Goal
	// Dir is the directory of the kubelet that a callout names: a pod's, or the
	// device mount path.
	Dir string
	// Volume is what the options of the callout make of the volume; nil for those
	// that have none.
	Volume *csivol.Volume
	// Size is that of an expansion in bytes, and OldSize the one before.
	Size, OldSize int64
}

// A StepKind is what a step does.
type StepKind string

// The kinds that end an operation, or go on with it at once.
const (
	// Done: what was wanted is so.
	Done StepKind = "done"
	// Refuse ends the operation with an error.
	Refuse StepKind = "refuse"
	// Fail is an error that a step has found rather than a driver: what has been
	// begun for the operation is undone, as after the final error of a driver.
	Fail StepKind = "fail"
	// Look asks for a fact, and then for the next step again.
	Look StepKind = "look"
)

// The kinds that change nothing but the record.
const (
	// RecordTarget writes down that a pod, or the kubelet, wants the volume at a directory.
	RecordTarget StepKind = "record the target"
	// Drop takes a target out of the record. It is the last step of its release.
	Drop StepKind = "drop the target"
	// ForgetBind: what was bound to the directory is not any more.
	ForgetBind StepKind = "forget the bind"
	// NoteOwner writes down who ends the volume with its last target.
	NoteOwner StepKind = "note the owner"
	// LeaveToKubelet leaves stage and attachment to the kubelet's CSI plugin and the
	// control plane.
	LeaveToKubelet StepKind = "leave the volume to the kubelet's CSI plugin"
	// ForgetStage: the kubelet's CSI plugin has unstaged, or will.
	ForgetStage StepKind = "forget the stage"
	// ForgetAttachment: the control plane detaches, or nothing was begun.
	ForgetAttachment StepKind = "forget the attachment"
	// NoteAilments writes down which mounts are dead, or are so no more.
	NoteAilments StepKind = "note what is dead"
	NoteExpanded StepKind = "note the size"
)

// The kinds that do something, each with one request or one mount.
const (
	ControllerPublish   StepKind = "ControllerPublishVolume"
	ControllerUnpublish StepKind = "ControllerUnpublishVolume"
	// AskAttachment makes a VolumeAttachment and waits for it; AwaitAttachment only
	// waits for one that the control plane makes.
	AskAttachment    StepKind = "create the VolumeAttachment and wait"
	AwaitAttachment  StepKind = "wait for the VolumeAttachment"
	DeleteAttachment StepKind = "delete the VolumeAttachment and wait"
	NodeStage        StepKind = "NodeStageVolume"
	NodeUnstage      StepKind = "NodeUnstageVolume"
	NodePublish      StepKind = "NodePublishVolume"
	NodeUnpublish    StepKind = "NodeUnpublishVolume"
	// Republish repeats NodePublishVolume for a driver with requiresRepublish.
	Republish     StepKind = "NodePublishVolume once more"
	ApplyFSGroup  StepKind = "apply the fsGroup"
	Bind          StepKind = "bind"
	Unbind        StepKind = "unbind"
	PlaceMarker   StepKind = "mount the marker"
	RemoveMarker  StepKind = "unmount the marker"
	RemoveDead    StepKind = "unmount what is dead"
	Tidy          StepKind = "unmount what no record knows"
	RemoveVolData StepKind = "remove vol_data.json"
	// ControllerExpand and NodeExpand grow the volume, and its filesystem.
	ControllerExpand StepKind = "ControllerExpandVolume"
	NodeExpand       StepKind = "NodeExpandVolume"
)

// A Patience is how long a step may wait for what goes on without it.
type Patience string

// The patiences. Those of RPCs are the driver's timeouts.
const (
	// AsConfigured is the driver's timeout, but not longer than the caller waits.
	AsConfigured Patience = ""
	// Shortly is for what must not keep others from their turn.
	Shortly Patience = "shortly"
)

// A Step is what happens next.
type Step struct {
	Kind StepKind
	// Dir is the directory of the target that it is for.
	Dir string
	// Err is that of Refuse and Fail.
	Err error
	// Fact is what Look wants to know.
	Fact     Fact
	Patience Patience
	// Owner is that of NoteOwner.
	Owner volstate.Owner
	// DoubtAttachment: a Fail after which the attachment is asked for again.
	DoubtAttachment bool
	// Keep: the pod needs the volume. It is unmounted only to be mounted again.
	Keep bool
	// MayFail: the operation continues if the step fails.
	MayFail bool

	// Rule is the name of the rule that says so.
	Rule string
}

// A Planner decides by the rules of this package.
type Planner struct {
	// instead is asked instead of a rule, by its name: the model checker takes rules out,
	// and weakens them.
	instead map[string]func(*plan, Rule) *Step
}

// Next returns what happens next to a volume of which r is the record.
func (p Planner) Next(r *volstate.Record, op *Operation, o *Observed) Step {
	c := &plan{r: r, op: op, o: o, dir: op.Dir, instead: p.instead}
	if s := c.decide(tables[op.Goal]); s != nil {
		return *s
	}
	return Step{Kind: Done}
}

// tables are the rules of each goal, in the order in which they are asked. They never
// change; the reconciler asks them for thousands of volumes.
var tables = map[Goal][]Rule{
	Mount:           mountRules(),
	Unmount:         unmountRules(),
	CompleteUnmount: unmountRules(),
	MountDevice:     mountDeviceRules(),
	UnmountDevice:   unmountDeviceRules(),
	Attach:          attachGoalRules(),
	Detach:          detachGoalRules(),
	Expand:          expandRules(),
	Reconcile:       reconcileRules(),
}

// A Rule is a line of the table.
type Rule struct {
	// Name is the rule's own.
	Name string
	// When and Then are for lifecycle.md. Then has the name of a table in square
	// brackets (doc_tables.go) where next hands over to its rules.
	When, Then string
	// next returns nil where the rule does not apply. The rule of a step is where its kind
	// stands: step(NodePublish), or Kind: NodePublish.
	next func(*plan) *Step
}

// A plan is one search for the next step.
type plan struct {
	r       *volstate.Record
	op      *Operation
	o       *Observed
	dir     string // of the target that the rules are asked for
	instead map[string]func(*plan, Rule) *Step
	missing *Fact

	// Kept for the rules that come later in the same search.
	sorted []string
	ill    *ailing
}

// decide returns the step of the first rule that applies. If a rule needs a fact that
// was not observed yet, the step asks for that fact.
func (c *plan) decide(rules []Rule) *Step {
	for _, rule := range rules {
		next := rule.next
		if other := c.instead[rule.Name]; other != nil {
			next = func(c *plan) *Step { return other(c, rule) }
		}
		s := next(c)
		if c.missing != nil {
			return &Step{Kind: Look, Fact: *c.missing, Rule: rule.Name}
		}
		if s != nil {
			if s.Rule == "" {
				s.Rule = rule.Name
			}
			return s
		}
	}
	return nil
}

// at returns the first step of rules for another target.
func (c *plan) at(dir string, rules []Rule) *Step {
	before := c.dir
	c.dir = dir
	defer func() { c.dir = before }()
	return c.decide(rules)
}

func (c *plan) step(k StepKind) *Step { return &Step{Kind: k, Dir: c.dir} }

func refuse(err error) *Step { return &Step{Kind: Refuse, Err: err} }

func fail(err error) *Step { return &Step{Kind: Fail, Err: err} }

// stale reports whether something has been so for the grace period.
func (c *plan) stale(since time.Time) bool { return c.o.Now.Sub(since) >= c.o.Grace }
