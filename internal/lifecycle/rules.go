package lifecycle

import "github.com/flex2csi/flex2csi/internal/volstate"

// A Planner decides by the rules of this package.
type Planner struct {
	// instead returns in which situation a rule or table, by its name, is asked; nil: it is
	// not. The model checker takes rules out, and weakens them.
	instead map[string]func(*situation) *situation
}

func (p Planner) situationFor(name string, s *situation) *situation {
	if instead, is := p.instead[name]; is {
		return instead(s)
	}
	return s
}

// Next returns what happens next to a volume.
func (p Planner) Next(record *volstate.Record, op *Operation, observed *Observed) Step {
	if step := p.decide(&situation{record, op, observed, op.Dir}, tables[op.Goal]); step != nil {
		return *step
	}
	return Step{Kind: Done}
}

// tables are those of the goals. They never change; the reconciler asks them for thousands
// of volumes.
var tables = map[Goal]Table{
	Mount:           mountTable(),
	Unmount:         unmountTable(),
	CompleteUnmount: unmountTable(),
	MountDevice:     mountDeviceTable(),
	UnmountDevice:   unmountDeviceTable(),
	Attach:          attachGoalTable(),
	Detach:          detachGoalTable(),
	Expand:          expandTable(),
	Reconcile:       reconcileTable(),
}

// A Table is a list of rules. They are asked from the first to the last, until one names a
// step.
type Table struct {
	// Name and About are for lifecycle.md. A table without a name is a part of the one that
	// has it.
	Name, About string
	// given is the condition for all its rules; nil: none.
	given condition
	rules []Rule
}

// A Rule is a line of a table. It names a step, or the tables that name one. If they do
// not, the next rule is asked.
type Rule struct {
	// Name is the rule's own. Without one it is a part of its table, or of the rule that
	// hands over to that.
	Name string
	// When and Then say for lifecycle.md what applies and what follows. Then has the names
	// of tables in square brackets.
	When, Then string

	// each returns the targets that the rule is asked for, one after the other; nil: the one
	// that its table is asked for.
	each targets
	// applies is the condition; nil: there is none.
	applies condition
	// step makes the step. It may use the facts of the condition.
	step func(*situation) Step
	// tables are asked for the directory at; nil: that of the situation.
	tables []Table
	at     func(*situation) string
	// keeps: the steps for the target are those of a pod that needs the volume.
	keeps bool
}

// include asks a table in the place of a rule.
func include(t Table) Rule { return Rule{tables: []Table{t}} }

// group is a part of a table of which the rules have a condition in common.
func group(given condition, rules ...Rule) Rule { return include(Table{given: given, rules: rules}) }

// firstOf is for a rule with more than one outcome.
func firstOf(rules ...Rule) []Table { return []Table{{rules: rules}} }

// decide returns the step of the first rule that names one; nil: none does. If a condition
// needs a fact that was not observed, the step is to look at it.
func (p Planner) decide(s *situation, t Table) *Step {
	if s = p.situationFor(t.Name, s); s == nil {
		return nil
	}
	if t.given != nil {
		if a := t.given(s); !a.holds {
			return a.look()
		}
	}
	for i := range t.rules {
		if step := p.ask(s, &t.rules[i]); step != nil {
			return step
		}
	}
	return nil
}

// ask asks one rule. The step has the name of the innermost rule that has one.
func (p Planner) ask(s *situation, rule *Rule) *Step {
	if s = p.situationFor(rule.Name, s); s == nil {
		return nil
	}
	step := p.askForEach(s, rule)
	if step != nil && step.Rule == "" {
		step.Rule = rule.Name
	}
	return step
}

// askForEach asks a rule for all targets that it is for.
func (p Planner) askForEach(s *situation, rule *Rule) *Step {
	if rule.each == nil {
		return p.askFor(s, rule)
	}
	dirs, missing := rule.each(s)
	for _, dir := range dirs {
		if step := p.askFor(s.at(dir), rule); step != nil {
			return step
		}
	}
	return answer{missing: missing}.look()
}

// askFor asks a rule for the target of the situation.
func (p Planner) askFor(s *situation, rule *Rule) *Step {
	if rule.applies != nil {
		if a := rule.applies(s); !a.holds {
			return a.look()
		}
	}
	if rule.step != nil {
		step := rule.step(s)
		return &step
	}
	if rule.at != nil {
		s = s.at(rule.at(s))
	}
	for _, t := range rule.tables {
		if step := p.decide(s, t); step != nil {
			step.Keep = step.Keep || (rule.keeps && step.Dir == s.dir)
			return step
		}
	}
	return nil
}

// take is a step for the target.
func take(k StepKind) func(*situation) Step {
	return func(s *situation) Step { return Step{Kind: k, Dir: s.dir} }
}

// takeForVolume is a step for the volume.
func takeForVolume(k StepKind) func(*situation) Step {
	return func(*situation) Step { return Step{Kind: k} }
}

// refuse ends the operation with an error.
func refuse(why func(*situation) error) func(*situation) Step {
	return func(s *situation) Step { return Step{Kind: Refuse, Err: why(s)} }
}

// fail has the operation undo what it has begun.
func fail(why func(*situation) error) func(*situation) Step {
	return func(s *situation) Step { return Step{Kind: Fail, Err: why(s)} }
}

// always is an error that is known before.
func always(err error) func(*situation) error { return func(*situation) error { return err } }
