package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// rollbackOptions are the flags of migrate rollback.
type rollbackOptions struct {
	runOptions
	namespaces namespaceOptions
	all        bool
	offline    bool
	accept     []string
	yes        bool
}

func newMigrateRollback() *cobra.Command {
	o := rollbackOptions{runOptions: newRunOptions()}
	c := &cobra.Command{
		Use:   "rollback NAME... | --namespace NAMESPACE | --all",
		Short: "Replace CSI volumes with the FlexVolumes that they were",
		Long: `Replace CSI volumes with the FlexVolumes that they were, also while pods run. The
migration may be complete or not. The FlexVolumes are in the journal, and in the
volume itself. The bridge still has to serve their driver.

NAME is that of a PersistentVolume, or of its claim (namespace/name).`,
		Example: `  flex2csi migrate rollback shop/orders
  flex2csi migrate rollback --all --width 4`,
		RunE: o.rollback,
	}
	set := c.Flags()
	o.namespaces.add(c, &o.api)
	set.BoolVar(&o.all, "all", false, "all volumes that were migrated or are being migrated")
	set.BoolVar(&o.offline, "offline", false, "include volumes with pods that the operator stops before or meanwhile")
	set.StringSliceVar(&o.accept, "accept", nil, "`checks` to accept: kubelet-restart")
	completes(c, "accept", fixed([]string{"kubelet-restart"}))
	c.ValidArgsFunction = o.api.names(migratedVolumes)
	addYes(c, &o.yes)
	o.runOptions.add(c)
	return c
}

func (o *rollbackOptions) check(args []string, env environment) error {
	switch {
	case !o.all && len(o.namespaces.namespaces)+len(args) == 0:
		return usagef("which volumes? Name some, or give --namespace or --all; flex2csi migrate status shows them")
	case o.all && len(args) > 0:
		return usagef("--all are all that were migrated: name none besides")
	}
	if err := checkAccept(o.accept); err != nil {
		return err
	}
	return o.checkConfirmed(env, o.yes)
}

func (o *rollbackOptions) rollback(c *cobra.Command, names []string) error {
	env := streams(c)
	if err := o.check(names, env); err != nil {
		return err
	}
	options := migrate.Options{Mode: journal.Live, Accept: o.accept}
	if o.offline {
		options.Mode = journal.Offline
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	s, err := o.open(ctx, env, options, false)
	if err != nil {
		return err
	}
	back := continuation{read: s.runner.Reversible, do: s.runner.Rollback, nothing: "Nothing was migrated.", back: true}
	if !o.yes {
		back.confirm = func(volumes int) error {
			return confirm(ctx, env, fmt.Sprintf("Make FlexVolumes again of %d volumes in %s?", volumes, s.cluster.Server()))
		}
	}
	return s.goOn(ctx, names, &o.namespaces, back)
}
