package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// resumeOptions are the flags of migrate resume.
type resumeOptions struct {
	runOptions
	namespaces namespaceOptions
	accept     []string
}

func newMigrateResume() *cobra.Command {
	o := resumeOptions{runOptions: newRunOptions()}
	c := &cobra.Command{
		Use:   "resume [NAME...]",
		Short: "Continue migrations that are not finished",
		Long: `Continue migrations that were started and are not finished, whatever has
interrupted them, each in its direction: a rollback continues as a rollback. They
are those of the journal in the cluster, so that another machine can continue as
well. resume first reads the state of the cluster.

NAME is that of a PersistentVolume, or of its claim (namespace/name). Without one it
continues all of them. It does not prompt for confirmation: apply or rollback did.`,
		Example: `  flex2csi migrate resume --width 10
  flex2csi migrate resume orders --timeout 30m`,
		RunE: o.resume,
	}
	o.namespaces.add(c, &o.api)
	addAccept(c, &o.accept)
	c.ValidArgsFunction = o.api.names(migratedVolumes)
	o.runOptions.add(c)
	return c
}

// resume is flex2csi migrate resume.
func (o *resumeOptions) resume(c *cobra.Command, names []string) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := checkAccept(o.accept); err != nil {
		return err
	}
	env := streams(c)
	ctx, stop := untilInterrupted(c)
	defer stop()
	s, err := o.reopen(ctx, env, migrate.Options{Mode: journal.Offline, Accept: o.accept})
	if err != nil {
		return err
	}
	if names, err = s.runner.VolumeNames(ctx, names); err != nil {
		return err
	}
	records, err := s.runner.Resumable(ctx, names)
	unread, err := journal.Unread(err)
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(r *journal.Record) bool { return o.namespaces.without(r.Claim) })
	r := &results{unread: unread, named: names}
	if len(records) == 0 {
		sayNothing(env, unread, "Nothing is unfinished.")
		return s.report(r, nil)
	}
	if err := tableOfRecords(env.err, records); err != nil {
		return err
	}
	r.all, err = s.again(ctx, records, s.runner.Resumable, s.runner.Resume)
	return s.report(r, err)
}

// sayNothing says that there is nothing to do, unless not all of the journal is known.
func sayNothing(env environment, unread error, text string) {
	if unread != nil {
		text = "No record that can be read is left to do."
	}
	fmt.Fprintln(env.err, text, "Nothing was changed.")
}

// reopen connects to the cluster of the journal, for migrations that were started.
func (o *runOptions) reopen(ctx context.Context, env environment, options migrate.Options) (*session, error) {
	s, err := o.open(ctx, env, options, false)
	if err != nil {
		return nil, err
	}
	if err := sameCluster(ctx, s.cluster, o.journal); err != nil {
		return nil, err
	}
	return s, nil
}

// again calls do with the records that were shown, read again under the lock.
func (s *session) again(ctx context.Context, shown []*journal.Record, read func(context.Context, []string) ([]*journal.Record, error), do func(context.Context, []*journal.Record) ([]migrate.Result, error)) ([]migrate.Result, error) {
	var volumes []string
	for _, r := range shown {
		volumes = append(volumes, r.Volume)
	}
	return s.work(ctx, len(volumes), func(ctx context.Context) ([]migrate.Result, error) {
		records, err := read(ctx, volumes)
		unread, err := journal.Unread(err)
		if err != nil {
			return nil, fmt.Errorf("%w; nothing was changed", err)
		}
		results, err := do(ctx, records)
		return results, errors.Join(err, unread)
	})
}

// tableOfRecords prints the migrations to resume.
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
