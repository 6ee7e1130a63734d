package cluster

import (
	"slices"
	"testing"

	"github.com/flex2csi/flex2csi/test/rights"
)

// testRightsUsed: each right that docs/rbac.md gives to nodes and controller was used by
// a request of the tests before, and none was for a right that its account is not meant
// to have. A right that no request uses is one too many. Requests are refused for a
// moment where tests take rights away or restart the API server.
func testRightsUsed(t *testing.T, c *cluster) {
	audit := c.With(t).Audit()
	for account, headings := range map[string][]string{
		"flex2csi-node":       {"### Rights of the nodes", "### Rights for Secrets", "### Rights for tokens"},
		"flex2csi-controller": {"### Rights of the controller", "### Rights to attach"},
	} {
		all := table(t, headings...)
		for _, right := range audit.Unused(account, all) {
			if !slices.Contains(usedElsewhere(), right) {
				t.Errorf("no request of %s has used the right to %s", account, right)
			}
		}
		// install/migrate is not there, and the daemon tries.
		if beyond := audit.Beyond(account, append(all, table(t, "## For migrations")...)); len(beyond) > 0 {
			t.Errorf("%s is not meant to have the right to %q, and has asked for it", account, beyond)
		}
	}
}

func table(t *testing.T, headings ...string) (all []string) {
	t.Helper()
	for _, heading := range headings {
		of, err := rights.Table("../../"+rights.Document, heading)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, of...)
	}
	return all
}

// usedElsewhere are rights that are not used here.
func usedElsewhere() []string {
	return []string{
		// Where an API server cannot list by a watch (WatchList).
		"list csidrivers.storage.k8s.io",
	}
}
