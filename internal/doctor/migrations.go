package doctor

import "context"

// A Migration has started, is not finished, and no process works on it.
type Migration struct {
	Volume, Claim string
	// WithoutVolume: there is no PersistentVolume now.
	WithoutVolume bool
	Stage         string
	Trouble       string // the last error; may be empty
}

const (
	migrationsUnknown   = "whether a migration to CSI has stopped half-way"
	migrationsOfVolume  = "flex2csi migrate resume {subject} goes on, flex2csi migrate rollback {subject} goes back; flex2csi migrate status says more."
	migrationsDangerous = "At once: " + migrationsOfVolume + " Until then do not restart the kubelet of a node that has a pod of the claim: it may unmount the volume under the pod."
)

// What is found about migrations.
var (
	migrationNoVolume = kind("migration-without-volume", Error, nil, migrationsDangerous)
	migrationHalted   = kind("migration-halted", Warning, nil, migrationsOfVolume)
)

// checkMigrations reports halted migrations. One that stopped while its PersistentVolume
// does not exist is urgent, and the operator who stopped it may not know.
func (p *probe) checkMigrations(ctx context.Context, n *notes) {
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
		n.add(migrationHalted, m.Volume, "the migration of PersistentVolume %s (claim %s) stopped at %s, and no process works on it%s", m.Volume, m.Claim, m.Stage, why)
	}
}
