package cluster

import (
	"slices"
	"testing"

	"github.com/flex2csi/flex2csi/test/rights"
)

// testRightsUsed: each right that docs/rbac.md gives to nodes and controller was used by
// a request of the tests before, and no request was without one. A right that no request
// uses is one too many.
func testRightsUsed(t *testing.T, c *cluster) {
	audit := c.With(t).Audit()
	for account, headings := range map[string][]string{
		"flex2csi-node":       {"### Rights of the nodes", "### Rights for Secrets", "### Rights for tokens"},
		"flex2csi-controller": {"### Rights of the controller", "### Rights to attach"},
	} {
		if len(audit.Used[account]) == 0 {
			t.Errorf("%s has asked for nothing", account)
		}
		for _, heading := range headings {
			all, err := rights.Table("../../"+rights.Document, heading)
			if err != nil {
				t.Fatal(err)
			}
			for _, right := range audit.Unused(account, all) {
				if !slices.Contains(usedElsewhere(), account+" "+right) {
					t.Errorf("no request of %s has used the right to %s", account, right)
				}
			}
		}
		for _, right := range audit.Refused(account) {
			if !slices.Contains(refusedInTests(), account+" "+right) {
				t.Errorf("%s has no right to %s, and has asked for it", account, right)
			}
		}
	}
}

// usedElsewhere are rights that are not used here.
func usedElsewhere() []string {
	return []string{
		// Where an API server cannot list by a watch (WatchList).
		"flex2csi-controller list csidrivers.storage.k8s.io",
		"flex2csi-node list csidrivers.storage.k8s.io",
	}
}

// refusedInTests are requests without a right that belong to tests.
func refusedInTests() []string {
	return []string{
		// install/migrate is not there. The daemon asks again after a pause.
		"flex2csi-node update configmaps -n flex2csi-nodes",
		// testSecrets begins without the Role.
		"flex2csi-node get secrets -n flex2csi",
		// testObjects takes the right away.
		"flex2csi-node list csidrivers.storage.k8s.io",
		"flex2csi-node watch csidrivers.storage.k8s.io",
	}
}
