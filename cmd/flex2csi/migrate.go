package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
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
	var about strings.Builder
	about.WriteString("Make CSI PersistentVolumes of FlexVolume ones, under the same name and the same\nclaim, with the mapping of the bridge.\n\n")
	for _, c := range migrateCommands() {
		fmt.Fprintf(&about, "  %-9s %s\n", c.word(), c.summary)
	}
	about.WriteString("\nflex2csi migrate COMMAND --help says more.")
	return flags("migrate", about.String(), env)
}

// untilInterrupted is a context that ends with Ctrl-C.
func untilInterrupted() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
}
