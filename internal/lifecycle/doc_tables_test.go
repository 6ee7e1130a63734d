package lifecycle

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/testenv"
)

var update = flag.Bool("update", false, "write the tables instead of comparing them")

// TestLifecycle: the tables of lifecycle.md are those that the planner decides by. With
// -update (make docs) they are made.
func TestLifecycle(t *testing.T) {
	testenv.Section(t, "lifecycle.md", "<!-- What follows is made from internal/lifecycle by make docs. -->\n", "<!-- Up to here. -->\n", sections(), *update)
}

// sections makes a section of each table. TestLinks of hack/manual finds names of tables in
// rules that no table has.
func sections() string {
	var b strings.Builder
	name := regexp.MustCompile(`\[([^]]+)\]`)
	link := func(text string) string {
		return name.ReplaceAllStringFunc(text, func(s string) string {
			return s + "(#" + strings.ReplaceAll(strings.Trim(s, "[]"), " ", "-") + ")"
		})
	}
	for _, table := range docTables() {
		fmt.Fprintf(&b, "\n### %s\n\n", table.name)
		if table.about != "" {
			b.WriteString(table.about + "\n\n")
		}
		b.WriteString("| rule | when | then |\n|---|---|---|\n")
		for _, row := range table.rows {
			if row.shared != "" {
				fmt.Fprintf(&b, "| … | | the rules of %s |\n", link("["+row.shared+"]"))
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", row.rule.Name, row.rule.When, link(row.rule.Then))
		}
	}
	return b.String() + "\n"
}

// A docTable is a list of rules for people: lifecycle.md.
type docTable struct {
	// name is that of a goal, or of what rules of other tables hand over to: their
	// texts have it in square brackets.
	name string
	// about says what is not in the rules.
	about string
	rows  []row
}

// A row is a rule or, with an empty rule, all the rules of the table shared.
type row struct {
	rule   Rule
	shared string
}

// docTables returns all rules: those of the goals first, then the shared ones.
func docTables() []docTable {
	parts := sharedTables()
	all := []docTable{
		{name: string(Mount), about: "The bind is the last step. What the kubelet sees at its directory is a finished mount."},
		{name: string(Unmount), about: "A pending unmount (flexdriver unmounted while the daemon was down) goes by the same rules."},
		{name: string(MountDevice), about: "Only with `attach: true`. It stages nothing: only mount says for which pod the volume is, and so whether that pod may have it."},
		{name: string(UnmountDevice), about: "Success has the control plane detach the volume, so nothing may be staged by then. The kubelet's own check for mounts of the volume does not see through the marker."},
		{name: string(Attach), about: "Only from a kubelet that attaches by itself (`enableControllerAttachDetach: false`)."},
		{name: string(Detach), about: "Only from a kubelet that attaches by itself. Data that a staged filesystem has not written would be lost."},
		{name: string(Expand), about: "Both halves of an expansion, since Kubernetes makes no other call. Without its controller service a driver may return OK, with the size or without, though the volume has not grown: the filesystem is asked."},
		{name: string(Reconcile), about: "Every 30 s for each volume without an operation, after the pending unmounts."},
	}
	for i := range all {
		all[i].rows = rows(tables[Goal(all[i].name)], parts)
	}
	for _, p := range parts {
		all = append(all, docTable{name: p.name, about: p.about, rows: rows(p.rules, parts)})
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
			all = append(all, row{rule: rules[i]})
		} else {
			all = append(all, row{shared: name})
		}
		i += length
	}
	return all
}

func sameName(a, b Rule) bool { return a.Name == b.Name }
