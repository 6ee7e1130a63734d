package migrate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestVendorDetaches: kube-controller-manager removes a volume from status.volumesAttached and
// then has the vendor's driver detach it. apply waited for that only if the wait itself had seen
// the entry, and not if plan or the last check had: the replacement was created under the detach.
func TestVendorDetaches(t *testing.T) {
	for name, test := range map[string]struct {
		mode    journal.Mode
		resumed bool
	}{
		"Rolling":          {mode: journal.Rolling},
		"Rolling, resumed": {mode: journal.Rolling, resumed: true},
		"Offline":          {mode: journal.Offline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, test.mode)
				j.api.staged, j.api.vendor = "", true
				j.api.settle()
				var stopped, created time.Time
				watch := func(_ int, request string) error {
					if request == "create persistentvolumes" {
						created = time.Now()
					}
					if node := read(j.api, objects.Nodes(), "", "node-1"); stopped.IsZero() && len(node.Status.VolumesAttached) == 0 {
						stopped = time.Now()
					}
					return nil
				}
				if test.resumed {
					j.stopBefore("list nodes", "create pods/eviction") // which is the wait for the node
					j.api.before = watch
					j.wants(t.Context(), "resume")
				} else {
					j.api.before = watch
					j.wants(t.Context(), "apply")
				}
				if waited := created.Sub(stopped); stopped.IsZero() || waited < 9*time.Second {
					t.Errorf("the replacement is created %s after the entry was removed", waited)
				}
				j.isCSI()
			})
		})
	}
}
