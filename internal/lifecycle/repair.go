package lifecycle

import (
	"maps"
	"slices"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// Mounts that die with a process of their driver (FUSE) are replaced where no
// container can be harmed: a container keeps the dead mount, or, while it is
// replaced, sees the bare directory below and writes there. Elsewhere they are
// reported until their pods are deleted.

// repairRules replace what is dead for the second look in a row.
func repairRules() []Rule {
	return slices.Concat(ailmentRules(), []Rule{
		{"repair-unpublish", "a bound mount, or what is below it, was dead or missing at the last look, too, and no container can be harmed", "[unpublish the target]; only the bind is repeated where only that is missing", func(c *plan) *Step {
			for _, dir := range c.repairable() {
				if c.missing == nil && c.wantsUnpublish(dir) {
					s := c.at(dir, unpublishRules())
					s.Keep = true
					return s
				}
			}
			return nil
		}},
		{"repair-bring", "nothing is mounted at the directory of such a target", "[bring the volume to the pod]", func(c *plan) *Step {
			for _, dir := range c.repairable() {
				if c.missing != nil {
					return nil
				}
				if c.see(TheDir, dir).Mount.Mounted() {
					continue
				}
				if s := c.at(dir, bringRules()); s != nil {
					s.Keep = s.Dir == dir
					return s
				}
			}
			return nil
		}},
	})
}

// ailmentRules find what is dead, and say whether it can be replaced.
func ailmentRules() []Rule {
	return []Rule{
		{"note-ailments", "a mount is dead, silent or missing that was not at the last look, or works again", "record it, with an event; the next look repairs it where no container can be harmed", func(c *plan) *Step {
			if c.repairing() || c.missing != nil {
				return nil
			}
			stage, targets := c.ailments()
			if c.missing != nil || c.noted(stage, targets) {
				return nil
			}
			return &Step{Kind: NoteAilments}
		}},
		{"noted-just-now", "this look has recorded it", "done", func(c *plan) *Step {
			if !c.tookForVolume(NoteAilments) || c.repairing() {
				return nil
			}
			return &Step{Kind: Done}
		}},
		{"repair-unknown", "the driver is unavailable, or its secrets are known from a callout only", "refuse: delete the pods", func(c *plan) *Step {
			if len(c.repairable()) == 0 || c.missing != nil {
				return nil
			}
			if seen := c.see(TheDriver, ""); seen.Err != nil {
				return refuse(seen.Err)
			}
			for _, dir := range c.repairable() {
				if seen := c.see(TheCall, dir); seen.Err != nil {
					return refuse(errNoRepair(c.r, seen.Err))
				}
			}
			return nil
		}},
	}
}

// repairing reports whether this operation has begun to replace something.
func (c *plan) repairing() bool {
	for step := range c.op.taken {
		switch step.Kind {
		case Unbind, NodeUnpublish, NodeUnstage, NodeStage, NodePublish, Bind:
			return true
		}
	}
	return false
}

// missingMount is the ailment of a target that is not mounted any more, although no
// call asked to unmount it. Where there is no directory nothing is missing: the kubelet
// has removed it after a mount that failed, and calls no unmount.
const missingMount = "not mounted any more"

// ailments returns what is wrong with the mounts that the record has.
func (c *plan) ailments() (stage string, targets map[string]string) {
	if c.ill == nil {
		stage, targets = c.examine()
		if c.missing != nil {
			return stage, targets
		}
		c.ill = &ailing{stage, targets}
	}
	return c.ill.stage, c.ill.targets
}

// ailing is what several rules of one look want to know.
type ailing struct {
	stage   string
	targets map[string]string
}

func (c *plan) examine() (stage string, targets map[string]string) {
	targets = map[string]string{}
	for _, dir := range c.dirs() {
		if !c.r.Targets[dir].Bound {
			continue
		}
		switch seen := c.see(TheDir, dir); seen.Mount {
		case NotMounted:
			targets[dir] = missingMount
		case Dead, Silent:
			targets[dir] = seen.Err.Error()
		}
	}
	return c.stageWhy(), targets
}

// stageWhy is why what is staged does not work any more; empty: it does.
func (c *plan) stageWhy() string {
	if c.r.Stage != volstate.Done {
		return ""
	}
	if seen := c.stage(); seen.Mount == Dead || seen.Mount == Silent {
		return seen.Err.Error()
	}
	return ""
}

// silent reports whether any of the mounts only does not answer. It may answer
// again, as a server that fails over does, and nothing is repaired until then.
func (c *plan) silent() bool {
	for _, dir := range c.dirs() {
		if c.r.Targets[dir].Bound && c.see(TheDir, dir).Mount == Silent {
			return true
		}
	}
	return c.r.Stage == volstate.Done && c.stage().Mount == Silent
}

// noted reports whether the record says the same already.
func (c *plan) noted(stage string, targets map[string]string) bool {
	for dir, t := range c.r.Targets {
		if t.Dead != targets[dir] {
			return false
		}
	}
	return c.r.StageDead == stage
}

// repairable returns the directories to be mounted again: all or none if what was
// staged is dead, since it is shared.
func (c *plan) repairable() (dirs []string) {
	stage, targets := c.ailments()
	if c.missing != nil || (stage == "" && len(targets) == 0) || c.silent() {
		return nil
	}
	for _, dir := range c.dirs() {
		t := c.r.Targets[dir]
		ill := targets[dir] != "" || (stage != "" && t.Publish != volstate.None)
		switch {
		case !ill:
		case t.Bound && c.harmless(dir, targets[dir]):
			dirs = append(dirs, dir)
		case stage != "":
			return nil
		}
	}
	return dirs
}

// harmless reports whether no container can be looking at dir. A mount that is
// missing is not there to be looked at. Otherwise the kubelet must never have made
// a container for the pod: it makes pods/<uid>/containers/<name> first
// (pkg/kubelet/kubelet_pods.go, GenerateRunContainerOptions, Kubernetes v1.37.1,
// since every container has a terminationMessagePath).
func (c *plan) harmless(dir, why string) bool {
	if c.see(ThePod, dir).Pod.Gone || c.see(ThePendingUnmount, dir).Yes {
		return false // and is not brought again
	}
	return why == missingMount || c.driver().RepairInUse || c.see(ThePod, dir).Pod.NoContainer
}

// wantsUnpublish: where only the bind is missing, only that is made again.
func (c *plan) wantsUnpublish(dir string) bool {
	t := c.r.Targets[dir]
	if t.Publish == volstate.None || c.op.took(NodePublish, dir) {
		return false
	}
	alive := c.see(TheTarget, dir).Mount == Alive
	return c.stageWhy() != "" || !alive || c.see(TheDir, dir).Mount == Dead
}

// Ailments returns what NoteAilments writes down.
func Ailments(r *volstate.Record, op *Operation, o *Observed) (stage string, targets map[string]string) {
	c := &plan{r: r, op: op, o: o}
	stage, targets = c.ailments()
	return stage, maps.Clone(targets)
}
