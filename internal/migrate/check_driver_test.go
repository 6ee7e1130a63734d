package migrate_test

import (
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestNotDone: people migrated Rook's volumes, and found only then that ceph-csi takes no
// snapshot of them.
func TestNotDone(t *testing.T) {
	static := map[string]string{"staticVolume": "true"}
	for name, test := range map[string]struct {
		driver  string
		context map[string]string
		want    string
	}{
		"Rook's RBD":        {"rook-ceph.rbd.csi.ceph.com", static, "does not expand, snapshot, clone or delete it"},
		"RBD":               {"rbd.csi.ceph.com", static, "does not expand, snapshot, clone or delete it"},
		"Rook's CephFS":     {"rook-ceph.cephfs.csi.ceph.com", static, "does not expand, snapshot, clone or delete it"},
		"not static":        {"rook-ceph.rbd.csi.ceph.com", map[string]string{"staticVolume": "false"}, ""},
		"no context":        {"rook-ceph.rbd.csi.ceph.com", nil, ""},
		"of another vendor": {"disk.csi.example.com", static, ""},
	} {
		got := migrate.NotDone(&csivol.Volume{Driver: test.driver, Context: test.context})
		if !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
