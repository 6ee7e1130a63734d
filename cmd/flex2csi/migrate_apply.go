package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
)

// applyOptions are the flags of migrate apply.
type applyOptions struct {
	selectOptions
	runOptions
	rolling, offline bool
	accept           []string
	restorePolicy    bool
	yes              bool
}

func newMigrateApply() *cobra.Command {
	o := applyOptions{runOptions: newRunOptions()}
	c := &cobra.Command{
		Use:   "apply [NAME...]",
		Short: "Replace FlexVolumes with CSI volumes",
		Long: `Replace FlexVolumes with CSI volumes of the same name, for the same claims. It shows
the plan and asks before it changes anything.

Each volume is replaced when its plan is written down in a ConfigMap and its copy
(--journal), its reclaim policy is Retain, and the API server has accepted the
replacement as a dry run. Without these flags no pod is restarted. If the plan of a
volume needs more than they allow, the volume is not changed, and is listed with
what it needs:

    --rolling  pods are restarted where that is needed, one at a time
    --offline  apply waits until the operator has stopped the pods

apply starts no further volume after --max-failures unexpected errors. Ctrl-C completes
the volumes under way as far as necessary; then use resume or rollback.`,
		Example: `  flex2csi migrate apply --claim shop/orders
  flex2csi migrate apply --namespace shop --width 4 --accept owners
  flex2csi migrate apply --driver example.com/disk --rolling --yes
  flex2csi migrate apply --all --width 10 --max-per-node 2 --pause 1m --until 05:00`,
		RunE: o.apply,
	}
	set := c.Flags()
	o.selectOptions.add(c, &o.api)
	set.BoolVar(&o.rolling, "rolling", false, "restart pods where that is needed, one at a time of each workload")
	set.BoolVar(&o.offline, "offline", false, "include volumes with pods that the operator stops before or meanwhile")
	c.MarkFlagsMutuallyExclusive("rolling", "offline")
	addAccept(c, &o.accept)
	set.BoolVar(&o.restorePolicy, "restore-reclaim-policy", false, "set the old reclaim policy on the new volume in the end: with Delete, the CSI driver deletes the data with the claim")
	addYes(c, &o.yes)
	o.runOptions.add(c)
	return c
}

func addAccept(c *cobra.Command, accept *[]string) {
	c.Flags().StringSliceVar(accept, "accept", nil, "`checks` to accept that need a decision, for example owners,node; may be repeated")
	completes(c, "accept", separated(fixed(migrate.Decisions())))
}

// checkAccept refuses names that no decision has: in 800 volumes a misspelt one shows late.
func checkAccept(accept []string) error {
	for _, name := range accept {
		if !slices.Contains(migrate.Decisions(), name) {
			return usagef("--accept %s: no check of that name has something to decide, only %s; see TO DECIDE in flex2csi migrate plan", name, strings.Join(migrate.Decisions(), ", "))
		}
	}
	return nil
}

func addYes(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "do not prompt for confirmation")
}

func (o *applyOptions) check(args []string, env environment) error {
	if err := o.complete(args); err != nil {
		return err
	}
	if err := checkAccept(o.accept); err != nil {
		return err
	}
	return o.checkConfirmed(env, o.yes)
}

func (o *applyOptions) options() migrate.Options {
	mode := journal.Live
	switch {
	case o.rolling:
		mode = journal.Rolling
	case o.offline:
		mode = journal.Offline
	}
	return migrate.Options{Mode: mode, Accept: o.accept, RestoreReclaimPolicy: o.restorePolicy}
}

func (o *applyOptions) apply(c *cobra.Command, names []string) error {
	env := streams(c)
	if err := o.check(names, env); err != nil {
		return err
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	s, err := o.open(ctx, env, o.options(), true)
	if err != nil {
		return err
	}
	halted := sayHalted(ctx, s.cluster, s.o.home, env)
	plan, err := s.runner.Planner.Plan(ctx, &o.selection)
	if errors.Is(err, migrate.ErrNothing) { // as when all of them are migrated
		fmt.Fprintln(env.err, "No FlexVolume is selected, so there is nothing to do. Nothing was changed.")
		return s.report(&results{}, nil)
	}
	if err != nil {
		return err
	}
	if err := mayAll(plan); err != nil {
		return err
	}
	tasks, left := migrate.Choose(plan, s.runner.Options, halted...)
	r := &results{left: left, named: slices.Concat(o.selection.Names, o.selection.Claims), already: already(plan, halted)}
	if err := o.show(plan, tasks, left, env); err != nil {
		return err
	}
	if len(tasks) == 0 {
		fmt.Fprintln(env.err, "\nThere is nothing to do. Nothing was changed.")
		return s.report(r, nil)
	}
	if !o.yes {
		if err := confirm(ctx, env, fmt.Sprintf("Replace %d FlexVolumes by CSI volumes in %s?", len(tasks), plan.Server)); err != nil {
			return err
		}
	}
	r.all, err = s.work(ctx, len(tasks), func(ctx context.Context) ([]migrate.Result, error) { return s.runner.Apply(ctx, tasks) })
	return s.report(r, err)
}

// already returns the volumes of a plan with a finished migration.
func already(plan *migrate.Plan, halted []string) (names []string) {
	for _, v := range plan.Volumes {
		if v.Migrated && !slices.Contains(halted, v.Name) {
			names = append(names, v.Name)
		}
	}
	return names
}

// mayAll refuses to begin without all rights.
func mayAll(plan *migrate.Plan) error {
	for _, c := range plan.Checks {
		if c.Name == "rights" && c.Status != migrate.OK {
			return fmt.Errorf("%s; nothing was changed. %s", c.Evidence, c.Do)
		}
	}
	return nil
}

// show prints what will be done, and what will not, and why.
func (o *applyOptions) show(plan *migrate.Plan, tasks []migrate.Task, left []migrate.Result, env environment) error {
	shown := *plan
	shown.Related = nil // it is not replaced: only plan shows it
	if err := shown.Show(report.Table).Write(env.err, report.Table); err != nil {
		return err
	}
	var b strings.Builder
	for _, how := range []struct {
		mode journal.Mode
		text string
	}{
		{journal.Live, "Will be replaced now, under their pods if there are any"},
		{journal.Rolling, "Will be replaced while their pod is restarted"},
		{journal.Offline, "Will be replaced when a person has stopped their pods"},
	} {
		var names []string
		for _, t := range tasks {
			if t.Mode == how.mode {
				names = append(names, t.Volume.Name)
			}
		}
		if len(names) > 0 {
			fmt.Fprintf(&b, "\n%s (%d): %s\n", how.text, len(names), strings.Join(names, ", "))
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(&b, "\nWill be left as they are (%d):\n", len(left))
		for _, l := range left {
			fmt.Fprintf(&b, "  %s: %s\n", l.Volume, l.Why)
		}
	}
	_, err := fmt.Fprint(env.err, b.String())
	return err
}
