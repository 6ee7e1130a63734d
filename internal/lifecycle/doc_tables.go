package lifecycle

import "slices"

// A Table is a list of rules for people: lifecycle.md.
type Table struct {
	// Name is that of a goal, or of what rules of other tables hand over to: their
	// texts have it in square brackets.
	Name string
	// About says what is not in the rules.
	About string
	Rows  []row
}

// A row is a rule or, with an empty rule, all the rules of the table Shared.
type row struct {
	Rule   Rule
	Shared string
}

// Tables returns all rules: those of the goals first, then the shared ones.
func Tables() []Table {
	parts := sharedTables()
	all := []Table{
		{Name: string(Mount), About: "The bind is the last step. What the kubelet sees at its directory is a finished mount."},
		{Name: string(Unmount), About: "A pending unmount (flexdriver unmounted while the daemon was down) goes by the same rules."},
		{Name: string(MountDevice), About: "Only with `attach: true`. It stages nothing: only mount says for which pod the volume is, and so whether that pod may have it."},
		{Name: string(UnmountDevice), About: "Success has the control plane detach the volume, so nothing may be staged by then. The kubelet's own check for mounts of the volume does not see through the marker."},
		{Name: string(Attach), About: "Only from a kubelet that attaches by itself (`enableControllerAttachDetach: false`)."},
		{Name: string(Detach), About: "Only from a kubelet that attaches by itself. Data that a staged filesystem has not written would be lost."},
		{Name: string(Expand), About: "Both halves of an expansion, since Kubernetes makes no other call. Without its controller service a driver may return OK, with the size or without, though the volume has not grown: the filesystem is asked."},
		{Name: string(Reconcile), About: "Every 30 s for each volume without an operation, after the pending unmounts."},
	}
	for i := range all {
		all[i].Rows = rows(tables[Goal(all[i].Name)], parts)
	}
	for _, p := range parts {
		all = append(all, Table{Name: p.name, About: p.about, Rows: rows(p.rules, parts)})
	}
	return all
}

// A sharedTable is one of rules that several tables have, or hand over to.
type sharedTable struct {
	name, about string
	rules       []Rule
}

func sharedTables() []sharedTable {
	return []sharedTable{
		{"undo a failed mount", "The kubelet makes no call after a mount that failed. What is certain is undone at once; what is uncertain waits for the next mount or unmount, and for the reconciler after the grace period.", failedSetUp()},
		{"bring the volume to the pod", "NodeStageVolume is repeated whenever the stage is uncertain, also after a failed NodeUnstageVolume. Read-only and fsGroup are those of each target: a second pod may differ. Its fsGroup is then given to the files under the first pod as well; with VOLUME_MOUNT_GROUP the stage has the first pod's group, and each publish its own.", bringRules()},
		{"attach the volume", "These rules apply only while the volume is not known to be attached, or its publish context is not known.", attachRules()},
		{"release the target", "The target is removed last, so that the next try goes on where this one ended.", releaseRules()},
		{"unpublish the target", "", unpublishRules()},
		{"leave the node", "After the last target.", leaveRules()},
		{"end the stage", "The kubelet's CSI plugin may have the same volume staged, for a CSI PersistentVolume of it. Only one of the two unstages it.", leaveButDetachRules()},
		{"unstage the volume", "", unstageRules()},
		{"detach the volume", "A volume is detached the way that it was attached, whatever the configuration says by now.", detachRules(AsConfigured)},
		{"release the device mount path", "Only with `attach: true`.", releaseDeviceRules()},
		{"repair dead mounts", "A mount that only does not answer is not repaired. A dead one is replaced where no container can be harmed: no container of the pod was ever created, nothing is mounted there, or `repairInUse` is set. Nothing is bound again at a directory that the kubelet has removed.", repairRules()},
	}
}

// rows has one row for all rules of a shared table, of which the longest counts.
func rows(rules []Rule, parts []sharedTable) (all []row) {
	for i := 0; i < len(rules); {
		length, name := 1, ""
		for _, p := range parts {
			if n := len(p.rules); n > length && n < len(rules) && n <= len(rules)-i && slices.EqualFunc(p.rules, rules[i:i+n], sameName) {
				length, name = n, p.name
			}
		}
		if name == "" {
			all = append(all, row{Rule: rules[i]})
		} else {
			all = append(all, row{Shared: name})
		}
		i += length
	}
	return all
}

func sameName(a, b Rule) bool { return a.Name == b.Name }
