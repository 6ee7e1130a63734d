package e2e

import (
	"os"
	"slices"

	"github.com/flex2csi/flex2csi/test/rights"
)

// rightsOf are the headings of docs/rbac.md with the rights that are installed here, by
// ServiceAccount.
func rightsOf() map[string][]string {
	return map[string][]string{
		"flex2csi-node":       {"### Rights of the nodes", "## For migrations"},
		"flex2csi-controller": {"### Rights of the controller", "### Rights to attach"},
	}
}

// refusals: no request was for a right that its account is not meant to have.
func refusals(t *T) {
	audit := t.audit()
	for account, headings := range rightsOf() {
		if len(audit.Used[account]) == 0 {
			t.Errorf("%s has asked for nothing", account)
		}
		var meant []string
		for _, heading := range headings {
			all, err := rights.Table("../../"+rights.Document, heading)
			t.must(err)
			meant = append(meant, all...)
		}
		if beyond := audit.Beyond(account, meant); len(beyond) > 0 {
			t.Errorf("%s is not meant to have the right to %q, and has asked for it", account, beyond)
		}
	}
}

// rightsUsed: each right was used by a request of the scenarios before, if those were
// all.
func rightsUsed(t *T) {
	audit := t.audit()
	without := []string{
		// Where an API server cannot list by a watch (WatchList).
		"list csidrivers.storage.k8s.io",
		// When a volume is not attached in time, or a sweep finds one that no node reports;
		// test/cluster has them.
		"get csinodes.storage.k8s.io", "create events", "patch events", "list pods",
	}
	for account, headings := range rightsOf() {
		for _, heading := range headings {
			all, err := rights.Table("../../"+rights.Document, heading)
			t.must(err)
			unused := slices.DeleteFunc(audit.Unused(account, all), func(right string) bool { return slices.Contains(without, right) })
			switch {
			case len(unused) == 0:
			case os.Getenv("SCENARIO") == "":
				t.Errorf("no request of %s has used the right to %q", account, unused)
			default:
				t.note("not used by %s: %q", account, unused)
			}
		}
	}
}

func (t *T) audit() *rights.Audit {
	t.Helper()
	audit, err := rights.ReadAudit(t.node.AuditLog())
	t.must(err)
	return audit
}
