package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// resumeOptions are the flags of migrate resume.
type resumeOptions struct {
	runOptions
	accept []string
}

func (o *resumeOptions) flags(env environment) *pflag.FlagSet {
	set := flags("migrate resume", `Go on with migrations that were begun and are not finished, whatever has
interrupted them, each in the direction that it had: a rollback goes on back. They
are those of the journal, in the directory and in the cluster, so that another
machine can go on as well. What there is in the cluster is looked at first.

Without a NAME of a PersistentVolume it is all of them. It does not ask: that was
done.

  flex2csi migrate resume --width 10
  flex2csi migrate resume orders --timeout 30m`, env)
	set.SetInterspersed(true)
	addAccept(set, &o.accept)
	o.runOptions.add(set)
	return set
}

// migrateResume is flex2csi migrate resume.
func migrateResume(args []string, env environment) error {
	var o resumeOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	s, err := o.open(ctx, env, migrate.Options{Mode: journal.Offline, Accept: o.accept}, false)
	if err != nil {
		return err
	}
	if err := sameCluster(ctx, s.cluster, o.journal); err != nil {
		return err
	}
	records, err := s.runner.Resumable(ctx, set.Args())
	if err != nil {
		return err
	}
	r := &results{named: set.Args()}
	if len(records) == 0 {
		fmt.Fprintln(env.err, "Nothing is unfinished. Nothing was changed.")
		return s.report(r, nil)
	}
	if err := tableOfRecords(env.err, records); err != nil {
		return err
	}
	r.all, err = s.again(ctx, records, s.runner.Resumable, s.runner.Resume)
	return s.report(r, err)
}

// rollbackOptions are the flags of migrate rollback.
type rollbackOptions struct {
	runOptions
	all     bool
	offline bool
	accept  []string
	yes     bool
}

func (o *rollbackOptions) flags(env environment) *pflag.FlagSet {
	set := flags("migrate rollback", `Make FlexVolumes again of volumes that were migrated, or whose migration is not
finished: the same way back, with the same care, also under running pods. What
they were is in the journal, in the directory and in the cluster, and in the
volume itself. The bridge has to serve their driver still.

  flex2csi migrate rollback orders
  flex2csi migrate rollback --all --width 4`, env)
	set.SetInterspersed(true)
	set.BoolVar(&o.all, "all", false, "all volumes that were migrated or are on their way")
	set.BoolVar(&o.offline, "offline", false, "take volumes, too, whose pods somebody has stopped or stops meanwhile")
	set.StringSliceVar(&o.accept, "accept", nil, "names of `checks` to accept: kubelet-restart")
	set.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	o.runOptions.add(set)
	return set
}

func (o *rollbackOptions) check(args []string, env environment) error {
	switch {
	case !o.all && len(args) == 0:
		return usagef("which volumes? Name some, or give --all; flex2csi migrate status shows them")
	case o.all && len(args) > 0:
		return usagef("--all are all that were migrated: name none besides")
	}
	if err := o.runOptions.check(); err != nil {
		return err
	}
	return mayAsk(env, o.yes)
}

// migrateRollback is flex2csi migrate rollback.
func migrateRollback(args []string, env environment) error {
	var o rollbackOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	if err := o.check(set.Args(), env); err != nil {
		return err
	}
	options := migrate.Options{Mode: journal.Live, Accept: o.accept}
	if o.offline {
		options.Mode = journal.Offline
	}
	ctx, stop := untilInterrupted()
	defer stop()
	s, err := o.open(ctx, env, options, false)
	if err != nil {
		return err
	}
	if err := sameCluster(ctx, s.cluster, o.journal); err != nil {
		return err
	}
	records, err := s.runner.Reversible(ctx, set.Args())
	if err != nil {
		return err
	}
	r := &results{named: set.Args(), back: true}
	if len(records) == 0 {
		fmt.Fprintln(env.err, "Nothing was migrated. Nothing was changed.")
		return s.report(r, nil)
	}
	if err := tableOfRecords(env.err, records); err != nil {
		return err
	}
	if !o.yes {
		if err := confirm(ctx, env, fmt.Sprintf("Make FlexVolumes again of %d volumes in %s?", len(records), s.cluster.Server())); err != nil {
			return err
		}
	}
	r.all, err = s.again(ctx, records, s.runner.Reversible, s.runner.Rollback)
	return s.report(r, err)
}

// again does something with the records that were shown, as they are when nobody
// else can write them any more.
func (s *session) again(ctx context.Context, shown []*journal.Record, read func(context.Context, []string) ([]*journal.Record, error), do func(context.Context, []*journal.Record) ([]migrate.Result, error)) ([]migrate.Result, error) {
	var volumes []string
	for _, r := range shown {
		volumes = append(volumes, r.Volume)
	}
	return s.work(ctx, len(volumes), func(ctx context.Context) ([]migrate.Result, error) {
		records, err := read(ctx, volumes)
		if err != nil {
			return nil, fmt.Errorf("%w; nothing was changed", err)
		}
		return do(ctx, records)
	})
}

// tableOfRecords shows what is gone on with.
func tableOfRecords(out io.Writer, records []*journal.Record) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "VOLUME\tCLAIM\tDIRECTION\tSTAGE\tSINCE\tBY\tTROUBLE")
	for _, r := range records {
		since := "-"
		if at, ok := r.Times[r.Stage]; ok {
			since = at.Local().Format(time.DateTime)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Volume, orDash(r.Claim), direction(r.Direction), r.Stage, since, orDash(r.By), orDash(r.Trouble))
	}
	return t.Flush()
}

func direction(d journal.Direction) string {
	if d == journal.ToFlexVolume {
		return "to FlexVolume"
	}
	return "to CSI"
}
