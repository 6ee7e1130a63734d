package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// goal is what a figure should be.
type goal struct {
	limit   float64
	atLeast bool
}

func (g goal) met(f figure) bool {
	if g.atLeast {
		return f.value >= g.limit
	}
	return f.value <= g.limit
}

func atMost(limit float64) *goal  { return &goal{limit: limit} }
func atLeast(limit float64) *goal { return &goal{limit: limit, atLeast: true} }

// row is one line of the table.
type row struct {
	what   string
	figure figure
	unit   string
	goal   *goal // nil: for comparison only
	note   string
}

func (r row) missed() bool { return r.goal != nil && !r.goal.met(r.figure) }

// group is what is measured together.
type group struct {
	name    string
	measure func(*bench) ([]row, error)
}

func groups() []group {
	return []group{
		{"start", (*bench).start},
		{"mount", (*bench).mount},
		{"memory", (*bench).memory},
		{"size", (*bench).size},
		{"mounter", (*bench).mounter},
		{"table", (*bench).table},
		{"flight", (*bench).flight},
		{"bridge", (*bench).bridged},
		{"bridge-disks", (*bench).bridgedDisks},
		{"bridge-table", (*bench).bridgedTable},
		{"bridge-full", (*bench).bridgedFull},
	}
}

func groupNames() string {
	var names []string
	for _, g := range groups() {
		names = append(names, g.name)
	}
	return strings.Join(names, ", ")
}

// scale is how much is measured.
type scale struct {
	rounds                        int // the most for one ratio
	calls                         int // of a batch, a multiple of inFlight
	mounts, records, disks, lives int
	mounted                       int
	rest                          time.Duration // of the daemon, which looks at each volume every 30 s
}

// full is what the names of the rows say.
var full = scale{rounds: 400, calls: 20 * inFlight, mounts: 10_000, records: 5000, disks: 64, lives: 250, mounted: 1000, rest: time.Minute}

// bench is one run.
type bench struct {
	ctx   context.Context //nolint:containedctx // a run is the life of the process
	scale scale
	out   *printer
	save  io.Writer // the figures for benchstat
	node  node
	begun time.Time
}

const (
	attempts = 3
	// enough is when nothing is tried again any more.
	enough = 240 * time.Second
)

func newBench(ctx context.Context, dir string, out *printer, save io.Writer) (*bench, error) {
	b := &bench{ctx: ctx, scale: full, out: out, save: save, begun: time.Now()}
	var err error
	b.node, err = newNode(ctx, dir)
	return b, err
}

func (b *bench) run(only []string, profile bool) error {
	b.out.header()
	missed := false
	for _, g := range groups() {
		if len(only) > 0 && !slices.Contains(only, g.name) {
			continue
		}
		b.out.busy(g.name)
		rows, err := b.attempt(g)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		for _, r := range rows {
			b.out.row(r)
			if err := save(b.save, r); err != nil {
				return err
			}
			missed = missed || r.missed()
		}
	}
	b.out.footer(time.Since(b.begun))
	if missed || profile {
		return b.profile()
	}
	return nil
}

// attempt measures a group, and again if it misses a goal, since the machine may
// have had other things to do. What counts is not the best attempt, which would
// be luck, but the one that was disturbed least.
func (b *bench) attempt(g group) ([]row, error) {
	var best []row
	for range attempts {
		rows, err := g.measure(b)
		if err != nil || b.ctx.Err() != nil {
			return nil, firstOf(b.ctx.Err(), err)
		}
		if best == nil || spread(rows) < spread(best) {
			best = rows
		}
		if !slices.ContainsFunc(best, row.missed) || time.Since(b.begun) > enough {
			break
		}
	}
	return best, nil
}

func spread(rows []row) (sum float64) {
	for _, r := range rows {
		sum += r.figure.spread()
	}
	return sum
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
