package lifecycle

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// Mounts that die with a process of their driver (FUSE) are replaced where no
// container can be harmed: a container keeps the dead mount, or, while it is
// replaced, sees the bare directory below and writes there. Elsewhere they are
// reported until their pods are deleted.

// repairTable replaces what is dead for the second look in a row.
func repairTable() Table {
	return Table{
		Name:  "repair dead mounts",
		About: "A mount that only does not answer is not repaired. A dead one is replaced where no container can be harmed: no container of the pod was ever created, nothing is mounted there, or `repairInUse` is set. Nothing is bound again at a directory that the kubelet has removed.",
		rules: []Rule{
			group(not(repairBegun),
				Rule{
					Name: "note-ailments", When: "a mount is dead, silent or missing that was not at the last look, or works again",
					Then:    "record it, with an event; the next look repairs it where no container can be harmed",
					applies: ailmentsChanged, step: noteAilments,
				},
				Rule{
					Name: "noted-just-now", When: "this look has recorded it", Then: "done",
					applies: tookForVolume(NoteAilments), step: takeForVolume(Done),
				},
			),
			{
				Name: "repair-unknown", When: "the driver is unavailable, or its secrets are known from a callout only", Then: "refuse: delete the pods",
				applies: anyRepairable,
				tables: firstOf(
					Rule{applies: objects(TheDriver), step: refuse(errorOf(TheDriver))},
					Rule{each: repairableTargets, applies: objects(TheCall), step: refuse(errNoRepair)},
				),
			},
			{
				Name: "repair-unpublish", When: "a bound mount, or what is below it, was dead or missing at the last look, too, and no container can be harmed",
				Then: "[unpublish the target]; only the bind is repeated where only that is missing",
				each: repairableTargets, applies: needsUnpublish, tables: []Table{unpublishTable()}, keeps: true,
			},
			{
				Name: "repair-bring", When: "nothing is mounted at the directory of such a target", Then: "[bring the volume to the pod]",
				each: repairableTargets, applies: not(isMounted(TheDir)), tables: []Table{bringTable()}, keeps: true,
			},
		},
	}
}

// repairBegun holds if this operation has begun to replace something.
func repairBegun(s *situation) answer {
	for step := range s.op.taken {
		switch step.Kind {
		case Unbind, NodeUnpublish, NodeUnstage, NodeStage, NodePublish, Bind:
			return is(true)
		}
	}
	return is(false)
}

// Ailments are what is wrong with the mounts that a record has.
type Ailments struct {
	// Stage is why what is staged does not work any more; empty: it does.
	Stage string
	// Targets are those of bound targets, by their directories.
	Targets map[string]string
}

func (ill *Ailments) add(dir, why string) {
	if ill.Targets == nil {
		ill.Targets = map[string]string{} // most volumes have none
	}
	ill.Targets[dir] = why
}

// missingMount is the ailment of a target that is not mounted any more, although no
// call asked to unmount it. Where there is no directory nothing is missing: the kubelet
// has removed it after a mount that failed, and calls no unmount.
const missingMount = "not mounted any more"

// examine returns the ailments, and whether any of the mounts only does not answer. It may
// answer again, as a server that fails over does, and nothing is repaired until then.
func (s *situation) examine() (ill Ailments, silent bool, missing *Fact) {
	for _, dir := range sortedDirs(s.record) {
		if !s.record.Targets[dir].Bound {
			continue
		}
		f := Fact{What: TheDir, Dir: dir}
		seen, observed := s.observed.Facts[f]
		if !observed {
			return ill, false, &f
		}
		switch seen.Mount {
		case NotMounted:
			ill.add(dir, missingMount)
		case Dead, Silent:
			ill.add(dir, seen.Err.Error())
			silent = silent || seen.Mount == Silent
		}
	}
	stage := stageIll(s)
	if stage.holds {
		seen := s.seen(TheStage)
		ill.Stage = seen.Err.Error()
		silent = silent || seen.Mount == Silent
	}
	return ill, silent, stage.missing
}

func stageIll(s *situation) answer {
	return all(stagePhaseIs(volstate.Done), stageIs(Dead, Silent))(s)
}

// ailmentsChanged holds if the record does not have them yet.
func ailmentsChanged(s *situation) answer {
	ill, _, missing := s.examine()
	changed := s.record.StageDead != ill.Stage
	for dir, t := range s.record.Targets {
		changed = changed || t.Dead != ill.Targets[dir]
	}
	return answer{holds: changed && missing == nil, missing: missing}
}

func noteAilments(s *situation) Step {
	ill, _, _ := s.examine()
	return Step{Kind: NoteAilments, Ailments: ill}
}

// repairableTargets are those to be mounted again: all or none if what was staged is dead,
// since it is shared.
func repairableTargets(s *situation) (dirs []string, missing *Fact) {
	ill, silent, missing := s.examine()
	if missing != nil || silent {
		return nil, missing
	}
	for _, dir := range sortedDirs(s.record) {
		t, why := s.record.Targets[dir], ill.Targets[dir]
		if why == "" && (ill.Stage == "" || t.Publish == volstate.None) {
			continue
		}
		harmless := all(targetBound, not(podDirGone), not(says(ThePendingUnmount)), either(isMissing(why), repairsInUse, noContainer))(s.at(dir))
		switch {
		case harmless.missing != nil:
			return nil, harmless.missing
		case harmless.holds:
			dirs = append(dirs, dir)
		case ill.Stage != "":
			return nil, nil
		}
	}
	return dirs, nil
}

// isMissing: a mount that is missing is not there to be looked at by a container. For any
// other the kubelet must never have made one for the pod: it makes pods/<uid>/containers/<name>
// first (pkg/kubelet/kubelet_pods.go, GenerateRunContainerOptions, Kubernetes v1.37.1,
// since every container has a terminationMessagePath).
func isMissing(why string) condition {
	return func(*situation) answer { return is(why == missingMount) }
}

func repairsInUse(s *situation) answer {
	return driverHas(func(d *DriverFacts) bool { return d.RepairInUse })(s)
}

func anyRepairable(s *situation) answer {
	dirs, missing := repairableTargets(s)
	return answer{holds: len(dirs) > 0, missing: missing}
}

// needsUnpublish: where only the bind is missing, only that is made again.
func needsUnpublish(s *situation) answer {
	return all(
		not(targetIs(volstate.None)), not(tookForTarget(NodePublish)),
		either(not(mountIs(TheTarget, Alive)), stageIll, mountIs(TheDir, Dead)),
	)(s)
}
