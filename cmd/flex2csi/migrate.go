package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// migrateCommands are those of flex2csi migrate.
func migrateCommands() []command {
	return []command{
		{name: "migrate plan", args: "[flags] [NAME...]", summary: "show what would become of FlexVolumes, and change nothing", run: migratePlan, flags: new(planOptions).flags},
		{name: "migrate apply", args: "[flags] [NAME...]", summary: "replace FlexVolumes by CSI volumes", run: migrateApply, flags: new(applyOptions).flags},
		{name: "migrate resume", args: "[flags] [NAME...]", summary: "go on with what was begun and is not finished", run: migrateResume, flags: new(resumeOptions).flags},
		{name: "migrate rollback", args: "[flags] NAME... | --all", summary: "make FlexVolumes again", run: migrateRollback, flags: new(rollbackOptions).flags},
		{name: "migrate status", args: "[flags] [NAME...]", summary: "show how far migrations are, and what is wrong with them", run: migrateStatus, flags: new(migrateStatusOptions).flags},
		{name: "migrate finish", args: "[flags]", summary: "tell whether FlexVolume drivers and the bridge can be taken away", run: migrateFinish, flags: new(finishOptions).flags},
	}
}

// migrateFlags are none: each of its commands has its own.
func migrateFlags(env environment) *pflag.FlagSet {
	about := `Make CSI PersistentVolumes of FlexVolume ones, under the same name and the same
claim, with the mapping of the bridge.

`
	for _, c := range migrateCommands() {
		about += fmt.Sprintf("  %-9s %s\n", c.word(), c.summary)
	}
	return flags("migrate", about+"\nflex2csi migrate COMMAND --help says more.", env)
}

// untilInterrupted is a context that ends with Ctrl-C.
func untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}
