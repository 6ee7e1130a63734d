package doctor_test

import (
	"context"
	"errors"
	"testing"

	"github.com/flex2csi/flex2csi/internal/doctor"
)

// TestMigrations: one that stopped where there is no volume is urgent, one that
// stopped elsewhere is not, and what is not known is said.
func TestMigrations(t *testing.T) {
	look := func(all []doctor.Migration, err error) *doctor.Report {
		return newCluster().look(t, func(o *doctor.Options) {
			o.Migrations = func(context.Context) ([]doctor.Migration, error) { return all, err }
		})
	}
	r := look([]doctor.Migration{
		{Volume: "gone", Claim: "shop/gone", WithoutVolume: true, Stage: "Deleting", Trouble: "killed"},
		{Volume: "waits", Claim: "shop/waits", Stage: "Attached"},
	}, nil)
	want(t, r, "", "migration-without-volume gone", "migration-halted waits")
	wantText(t, r, "stopped where there is none, and its claim shop/gone is Lost: killed", "At once: flex2csi migrate resume gone goes on", "stopped at Attached, and no process works on it")
	r = look(nil, errors.New("the journal is unreadable"))
	want(t, r, "")
	wantText(t, r, "whether a migration to CSI has stopped half-way: the journal is unreadable")
}
