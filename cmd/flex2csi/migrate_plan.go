package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/report"
)

// planOptions are the flags of migrate plan.
type planOptions struct {
	selectOptions
	plannerOptions
	format outputFormat
	dir    string
	dryRun bool
}

func newMigratePlan() *cobra.Command {
	o := planOptions{format: outputFormat{formats: []string{table, wide, asJSON, asYAML, asName, asHTML}}}
	c := &cobra.Command{
		Use:   "plan [NAME...]",
		Short: "Show what a migration would do, and change nothing",
		Long: `Show what a migration of FlexVolumes would do. It reads only.

For each volume it shows the CSI PersistentVolume that would be made, the checks
and their results, the visible effects, the decisions to make, and whether the
migration can be done live, with a pod restart, offline, or not at all. Volumes are
named, or selected by flags, which narrow each other.`,
		Example: `  flex2csi migrate plan --all
  flex2csi migrate plan --claim shop/orders -o wide
  flex2csi migrate plan --driver example.com/disk --output-dir plan`,
		RunE: o.plan,
	}
	o.selectOptions.add(c, &o.api)
	o.format.add(c)
	c.Flags().StringVar(&o.dir, "output-dir", "", "write the plan, the old volumes and the replacements as files into this `directory`, which is new or empty")
	c.Flags().BoolVar(&o.dryRun, "dry-run-server", true, "have the API server check the replacements as dry runs, if this user may create PersistentVolumes")
	o.plannerOptions.add(c)
	return c
}

func (o *planOptions) plan(c *cobra.Command, names []string) error {
	if err := o.complete(names); err != nil {
		return err
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	env := streams(c)
	cluster, planner, err := o.planner(ctx, env, true)
	if err != nil {
		return err
	}
	planner.WithoutDryRun, planner.Makers = !o.dryRun, true
	sayHalted(ctx, cluster, o.home, env)
	plan, err := planner.Plan(ctx, &o.selection)
	if err != nil {
		return err
	}
	if o.dir != "" {
		if err := plan.Write(o.dir); err != nil {
			return fmt.Errorf("write the plan: %w", err)
		}
	}
	err = o.format.print(env.out, plan, func(view report.View) *report.Report {
		r := plan.Show(view)
		if sum := &r.Sections[len(r.Sections)-1]; view != report.Page {
			sum.Notes = append(sum.Notes, report.Note{Text: "Nothing was changed."})
		}
		return r
	})
	return errors.Join(err, unanswered(plan))
}

// unanswered is an error if not all of a plan is known.
func unanswered(plan *migrate.Plan) error {
	if names := plan.Unknown(); len(names) > 0 {
		return fmt.Errorf("plan %d volumes: the API server had no answer for %s; plan again", len(plan.Volumes), some(names))
	}
	for _, c := range plan.Checks {
		if c.Status == migrate.Unanswered {
			return fmt.Errorf("%s: %s; plan again", c.Name, c.Evidence)
		}
	}
	return nil
}
