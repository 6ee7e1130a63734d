package migrate_test

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestRollbackOfOldKubelet: a kubelet before 1.28 does not tell the mounts of a FlexVolume and
// a CSI volume of one name apart when it is restarted, in either direction.
func TestRollbackOfOldKubelet(t *testing.T) {
	for version, refused := range map[string]bool{"v1.27.16": true, "v1.28.0": false} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Live)
				if _, err := j.do(t.Context(), "apply"); err != nil {
					t.Fatal(err)
				}
				modify(j.api, objects.Nodes(), "", "node-1", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = version })
				result, err := j.do(t.Context(), "rollback")
				if err != nil {
					t.Fatal(err)
				}
				if !refused {
					j.isFlex()
					return
				}
				if result.Outcome != migrate.Left || !strings.Contains(result.Why, version) || !strings.Contains(result.Why, "--offline") {
					t.Errorf("%s: %s", result.Outcome, result.Why)
				}
				j.isCSI()
			})
		})
	}
}
