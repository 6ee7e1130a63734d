package main

import "github.com/spf13/cobra"

func newMigrate() *cobra.Command {
	return group(&cobra.Command{
		Use:   "migrate",
		Short: "Replace FlexVolume PersistentVolumes with CSI ones",
		Long: `Replace FlexVolume PersistentVolumes with CSI PersistentVolumes of the same name
and for the same claim, with the mapping of the bridge.`,
	}, newMigrateApply(), newMigrateClasses(), newMigrateFinish(), newMigratePlan(), newMigrateResume(), newMigrateRollback(), newMigrateStatus())
}
