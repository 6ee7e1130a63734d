package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// planOptions are the flags of migrate plan.
type planOptions struct {
	selectOptions
	plannerOptions
	output string
	dir    string
	dryRun bool
}

func (o *planOptions) flags(env environment) *pflag.FlagSet {
	set := flags("migrate plan", `Show what would become of FlexVolumes. It reads only.

For each volume it shows the CSI PersistentVolume that would be made, what was
looked at and found, what will be seen, what a person has to decide, and whether
it can be done live, after a pod restart, offline, or not. Volumes are named, or
chosen by the flags, which narrow each other.

  flex2csi migrate plan --all
  flex2csi migrate plan --claim shop/orders -o wide
  flex2csi migrate plan --driver example.com/disk --output-dir plan`, env)
	set.SetInterspersed(true)
	o.selectOptions.add(set)
	set.StringVarP(&o.output, "output", "o", "table", "table, wide, yaml or json: a `format`")
	set.StringVar(&o.dir, "output-dir", "", "write the plan, the old volumes and the replacements as files into this `directory`, which is new or empty")
	set.BoolVar(&o.dryRun, "dry-run-server", true, "have the API server check the replacements as dry runs, if this user may create PersistentVolumes")
	o.plannerOptions.add(set)
	return set
}

// migratePlan is flex2csi migrate plan.
func migratePlan(args []string, env environment) error {
	var o planOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	if err := o.complete(set.Args()); err != nil {
		return err
	}
	if formats := []string{"table", "wide", "yaml", "json"}; !slices.Contains(formats, o.output) {
		return usagef("--output %s: want one of %s", o.output, strings.Join(formats, ", "))
	}
	ctx, stop := untilInterrupted()
	defer stop()
	cluster, planner, err := o.planner(ctx, env, true)
	if err != nil {
		return err
	}
	planner.WithoutDryRun = !o.dryRun
	sayHalted(ctx, cluster, env)
	plan, err := planner.Plan(ctx, &o.selection)
	if err != nil {
		return err
	}
	if o.dir != "" {
		if err := plan.Write(o.dir); err != nil {
			return fmt.Errorf("write the plan: %w", err)
		}
	}
	return o.print(plan, env)
}

func (o *planOptions) print(plan *migrate.Plan, env environment) error {
	var text []byte
	var err error
	switch o.output {
	case "yaml":
		text, err = plan.YAML()
	case "json":
		text, err = plan.JSON()
	default:
		if err := plan.Table(env.out, o.output == "wide"); err != nil {
			return err
		}
		text = []byte("Nothing was changed.\n")
	}
	if err != nil {
		return err
	}
	_, err = env.out.Write(text)
	return err
}
