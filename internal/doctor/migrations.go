package doctor

import "context"

// A Migration is one that was begun, is not finished, and that nobody is at.
type Migration struct {
	Volume, Claim string
	// WithoutVolume: there is no PersistentVolume now.
	WithoutVolume bool
	Stage         string
	Trouble       string // the last error; may be empty
}

// What is found about migrations.
const (
	migrationHalted     ID = "migration-halted"
	migrationNoVolume   ID = "migration-without-volume"
	migrationsUnknown      = "whether a migration to CSI has stopped half-way"
	migrationsOfVolume     = "flex2csi migrate resume {subject} goes on, flex2csi migrate rollback {subject} goes back; flex2csi migrate status says more."
	migrationsDangerous    = "At once: " + migrationsOfVolume + " Until then do not restart the kubelet of a node that has a pod of the claim: it may unmount the volume under the pod."
)

func migrationKinds() []Kind {
	return []Kind{
		{migrationNoVolume, Error, nil, migrationsDangerous},
		{migrationHalted, Warning, nil, migrationsOfVolume},
	}
}

// checkMigrations: one that stopped where there is no PersistentVolume is urgent,
// and whoever has killed it may not know.
func (p *patient) checkMigrations(ctx context.Context, n *notes) {
	halted, err := p.Migrations(ctx)
	if err != nil {
		n.skip(migrationsUnknown, "%v", err)
		return
	}
	for _, m := range halted {
		why := ""
		if m.Trouble != "" {
			why = ": " + m.Trouble
		}
		if m.WithoutVolume {
			n.add(migrationNoVolume, m.Volume, "the migration of PersistentVolume %s stopped where there is none, and its claim %s is Lost%s", m.Volume, m.Claim, why)
			continue
		}
		n.add(migrationHalted, m.Volume, "the migration of PersistentVolume %s (claim %s) stopped at %s, and nobody is at it%s", m.Volume, m.Claim, m.Stage, why)
	}
}
