package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
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
	s, err := o.open(ctx, env, migrate.Options{Mode: journal.Offline, Accept: o.accept}, false)
	if err != nil {
		return err
	}
	return s.goOn(ctx, names, &o.namespaces, continuation{read: s.runner.Resumable, do: s.runner.Resume, nothing: "Nothing is unfinished."})
}

// A continuation is what is done with records of the journal.
type continuation struct {
	read    func(context.Context, []string) ([]*journal.Record, error)
	do      func(context.Context, []*journal.Record) ([]migrate.Result, error)
	nothing string                  // is said where there are none
	confirm func(volumes int) error // nil: it is not asked for
	back    bool
}

// goOn goes on with the records of volumes and claims of these names; without names, with all.
func (s *session) goOn(ctx context.Context, names []string, namespaces *namespaceOptions, c continuation) error {
	names, err := s.runner.VolumeNames(ctx, names)
	if err != nil {
		return err
	}
	records, err := c.read(ctx, names)
	unread, err := journal.Unread(err)
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(r *journal.Record) bool { return namespaces.without(r.Claim) })
	r := &results{unread: unread, named: names, back: c.back}
	if len(records) == 0 {
		if unread != nil { // of these that is not known
			c.nothing = "There is nothing to do with the records that can be read."
		}
		fmt.Fprintln(s.env.err, c.nothing, "Nothing was changed.")
		return s.report(r, nil)
	}
	if err := tableOfRecords(s.env.err, records); err != nil {
		return err
	}
	if c.confirm != nil {
		if err := c.confirm(len(records)); err != nil {
			return err
		}
	}
	var volumes []string
	for _, r := range records {
		volumes = append(volumes, r.Volume)
	}
	r.all, err = s.work(ctx, len(volumes), func(ctx context.Context) ([]migrate.Result, error) {
		records, err := c.read(ctx, volumes) // again, under the lock
		unread, err := journal.Unread(err)
		if err != nil {
			return nil, fmt.Errorf("%w; nothing was changed", err)
		}
		results, err := c.do(ctx, records)
		return results, errors.Join(err, unread)
	})
	return s.report(r, err)
}

// tableOfRecords prints the migrations to resume.
func tableOfRecords(out io.Writer, records []*journal.Record) error {
	rows := report.Of(records, func(r *journal.Record) []string {
		since := ""
		if at, ok := r.Times[r.Stage]; ok {
			since = at.Local().Format(time.DateTime)
		}
		return []string{r.Volume, r.Claim, direction(r.Direction), string(r.Stage), since, r.By, r.Trouble}
	}, "Volume", "Claim", "Direction", "Stage", "Since", "By", "Trouble")
	return (&report.Report{Sections: []report.Section{{Rows: rows}}}).Write(out, report.Table)
}
