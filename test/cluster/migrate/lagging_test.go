package migrate_test

import (
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// unleased is a Lease that nobody else wants.
type unleased struct{}

func (unleased) Held() error { return nil }

// journalOf is a runner with a journal in a directory, as a process that begins.
func (w *world) journalOf(c *objects.Client, dir string) *migrate.Runner {
	w.t.Helper()
	return &migrate.Runner{
		Client: c, Planner: w.planner(c), Lease: unleased{}, Now: time.Now, Options: migrate.Options{Timeout: 5 * time.Second},
		Journal: &journal.Both{Disk: &journal.Disk{Dir: dir}, Cluster: journal.NewCluster(c, migrate.Namespace)},
	}
}

// testLagging: who was killed between the two places of the very last write left a
// ConfigMap that says that there is something to do; resume knows that, and mends
// it.
func testLagging(w *world) {
	c, x := w.through()
	dir, ctx := w.t.TempDir()+"/journal", w.t.Context()
	w.disk("lagging")
	w.came(w.operator(migrate.Options{}).apply("lagging"), migrate.Done, journal.Finished, "")
	before := w.journalOf(c, dir)
	rec, err := before.Journal.Load(ctx, "lagging")
	w.check(err)
	rec.Stage = journal.TakenOver
	w.check(before.Journal.Save(ctx, rec))
	rec.Stage = journal.Finished
	x.Fail(controlplane.Fault{Verb: "patch", Resource: "configmaps", Times: 1})
	if err := before.Journal.Save(ctx, rec); err == nil {
		w.t.Fatal("it was saved")
	}
	r := w.journalOf(c, dir)
	records, err := r.Resumable(ctx, []string{"lagging"})
	w.check(err)
	results, err := r.Resume(ctx, records)
	w.check(err)
	if len(results) != 1 || results[0].Outcome != migrate.Done {
		w.t.Fatalf("%+v", results)
	}
	rec, err = journal.NewCluster(c, migrate.Namespace).Load(ctx, "lagging")
	w.check(err)
	if rec.Stage != journal.Finished {
		w.t.Errorf("%+v", rec)
	}
	if records, err = w.journalOf(c, dir).Resumable(ctx, []string{"lagging"}); err != nil || len(records) > 0 {
		w.t.Error(records, err)
	}
}
