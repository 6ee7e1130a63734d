package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// TestSchedule: which volume may be started now.
func TestSchedule(t *testing.T) {
	now := time.Date(2026, 11, 25, 22, 0, 0, 0, time.UTC)
	on := func(nodes ...string) slot { return slot{nodes: nodes} }
	of := func(owner string) slot { return slot{busy: owner} }
	many := func(n int, s slot) (all []slot) {
		for range n {
			all = append(all, s)
		}
		return all
	}
	one := limits{width: 1, failures: 1}
	ten := limits{width: 10, failures: 1}
	with := func(l limits, change func(*limits)) limits { change(&l); return l }
	perNode := func(n int) limits { return with(ten, func(l *limits) { l.perNode = n }) }
	paused := with(limits{width: 3, failures: 1}, func(l *limits) { l.pause = time.Minute })
	until := func(l limits, at time.Time) limits { l.until = at; return l }
	none, over := decision{start: -1}, func(why string) decision { return decision{start: -1, over: why} }
	late := func(at time.Time) decision {
		return decision{start: -1, late: true, over: "--until " + at.Format(time.RFC3339)}
	}
	for _, test := range []struct {
		name   string
		limits limits
		run    run
		want   decision
	}{
		{"nothing is left", ten, run{}, none},
		{"nothing is left, and some failed", ten, run{failed: 3, interrupted: true}, none},
		{"the first one", one, run{left: many(2, on())}, decision{}},
		{"the width is full", one, run{left: many(2, on()), underWay: many(1, on())}, none},
		{"the width has room", ten, run{left: many(2, on()), underWay: many(9, on())}, decision{}},
		{"another one restarts the workload", ten, run{left: []slot{of("a"), of("b")}, underWay: many(1, of("a"))}, decision{start: 1}},
		{"others restart all workloads", ten, run{left: []slot{of("a"), of("b")}, underWay: []slot{of("b"), of("a")}}, none},
		{"no pod is restarted", ten, run{left: many(1, of("")), underWay: many(1, of(""))}, decision{}},

		{"no limit of a node", ten, run{left: many(1, on("n1")), underWay: many(9, on("n1"))}, decision{}},
		{"the node has room", perNode(2), run{left: many(1, on("n1")), underWay: []slot{on("n1"), on("n2")}}, decision{}},
		{"the node is full", perNode(2), run{left: many(1, on("n1")), underWay: many(2, on("n1"))}, none},
		{"another node has room", perNode(1), run{left: []slot{on("n1"), on("n2")}, underWay: many(1, on("n1"))}, decision{start: 1}},
		{"one of two nodes is full", perNode(1), run{left: many(1, on("n2", "n1")), underWay: many(1, on("n1", "n3"))}, none},
		{"without pods no node is full", perNode(1), run{left: []slot{on("n1"), on()}, underWay: []slot{on("n1"), on()}}, decision{start: 1}},
		{"the node has room, the width not", with(perNode(2), func(l *limits) { l.width = 1 }), run{left: many(1, on("n1")), underWay: many(1, on("n2"))}, none},
		{"the node has room, the workload not", perNode(2), run{left: []slot{{"a", []string{"n1"}}}, underWay: []slot{{"a", []string{"n1"}}}}, none},

		{"one failed", ten, run{left: many(1, on()), failed: 1}, over("1 failed (--max-failures 1)")},
		{"one failed, others are under way", ten, run{left: many(1, on()), underWay: many(1, on()), failed: 1}, over("1 failed (--max-failures 1)")},
		{"fewer failed than may", with(ten, func(l *limits) { l.failures = 3 }), run{left: many(1, on()), failed: 2}, decision{}},
		{"as many failed as may", with(ten, func(l *limits) { l.failures = 3 }), run{left: many(1, on()), failed: 3}, over("3 failed (--max-failures 3)")},
		{"interrupted", ten, run{left: many(1, on()), interrupted: true}, over("interrupted")},
		{"interrupted in a pause", paused, run{left: many(1, on()), ended: 3, lastEnd: now, interrupted: true}, over("interrupted")},

		{"the first wave", paused, run{left: many(5, on())}, decision{}},
		{"the first wave fills up", paused, run{left: many(4, on()), underWay: many(2, on())}, decision{}},
		{"the wave is full", paused, run{left: many(4, on()), underWay: many(3, on())}, none},
		{"the wave has not ended", paused, run{left: many(4, on()), underWay: many(2, on()), ended: 1, lastEnd: now.Add(-time.Hour)}, none},
		{"the pause", paused, run{left: many(4, on()), ended: 3, lastEnd: now.Add(-time.Second)}, decision{start: -1, again: now.Add(59 * time.Second)}},
		{"the pause is over", paused, run{left: many(4, on()), ended: 3, lastEnd: now.Add(-time.Minute)}, decision{}},
		{"without a pause others follow at once", ten, run{left: many(4, on()), underWay: many(1, on()), ended: 3, lastEnd: now}, decision{}},
		{"a failure ends the pause", paused, run{left: many(4, on()), ended: 3, failed: 1, lastEnd: now}, over("1 failed (--max-failures 1)")},

		{"there is time", until(ten, now.Add(time.Nanosecond)), run{left: many(1, on())}, decision{}},
		{"the time is over", until(ten, now), run{left: many(1, on())}, late(now)},
		{"the time is over, others are under way", until(ten, now.Add(-time.Hour)), run{left: many(1, on()), underWay: many(1, on())}, late(now.Add(-time.Hour))},
		{"the time is over, and one failed", until(ten, now), run{left: many(1, on()), failed: 1}, over("1 failed (--max-failures 1)")},
		{"the time is over, and nothing is left", until(ten, now), run{}, none},
		{"the pause ends in time", until(paused, now.Add(61*time.Second)), run{left: many(1, on()), ended: 3, lastEnd: now}, decision{start: -1, again: now.Add(time.Minute)}},
		{"the pause ends too late", until(paused, now.Add(time.Minute)), run{left: many(1, on()), ended: 3, lastEnd: now}, late(now.Add(time.Minute))},
		{"the wave ends perhaps in time", until(paused, now.Add(time.Second)), run{left: many(1, on()), underWay: many(1, on()), ended: 2, lastEnd: now}, none},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run.now = now
			got := test.limits.next(test.run)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(decision{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEach: volumes are started as the schedule says, and what came of each is told.
func TestEach(t *testing.T) {
	const takes = 10 * time.Second
	for _, test := range []struct {
		name    string
		options Options
		fails   string // numbers of volumes that do
		want    string // when each was started, in seconds; -: it was not
		why     string // of the last one
	}{
		{"one by one", Options{}, "", "0 10 20 30 40 50", ""},
		{"width", Options{Width: 4}, "", "0 0 0 0 10 10", ""},
		{"waves", Options{Width: 4, Pause: time.Minute}, "", "0 0 0 0 70 70", ""},
		{"a failure", Options{Width: 2}, "1", "0 0 - - - -", "Left: it was not started: 1 failed (--max-failures 1)"},
		{"failures", Options{Width: 1, MaxFailures: 2}, "1 3", "0 10 15 25 - -", "Left: it was not started: 2 failed (--max-failures 2)"},
		{"a window", Options{Width: 2, Until: time.Date(2000, 1, 1, 0, 0, 15, 0, time.UTC)}, "", "0 0 10 10 - -", "Later: it was not started: --until 2000-01-01T00:00:15Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Runner{Options: test.options, Now: time.Now}
				began, started := time.Now(), make([]string, 6)
				var jobs []job
				for i := range started {
					started[i] = "-"
					jobs = append(jobs, newJob(&journal.Record{Volume: fmt.Sprint(i)}, func(context.Context, *journal.Record) (*migration, error) {
						started[i] = fmt.Sprint(time.Since(began).Seconds())
						if strings.Contains(test.fails, fmt.Sprint(i)) {
							time.Sleep(takes / 2)
							return nil, errors.New("refused")
						}
						time.Sleep(takes)
						return nil, nil
					}))
				}
				results, err := r.runJobs(t.Context(), jobs)
				if got := strings.Join(started, " "); err != nil || got != test.want {
					t.Errorf("started at %s, want %s; %v", got, test.want, err)
				}
				last := results[len(results)-1]
				if got := fmt.Sprintf("%s: %s", last.Outcome, last.Why); test.why != "" && got != test.why {
					t.Error(got)
				}
			})
		})
	}
}

// TestEachInterrupted: a pause ends at once.
func TestEachInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		enough := make(chan struct{})
		var told []string
		r := &Runner{Options: Options{Pause: time.Hour}, Now: time.Now, Enough: enough, Progress: func(e Event) {
			if e.What == Paused {
				told = append(told, e.Text)
			}
		}}
		done := func(context.Context, *journal.Record) (*migration, error) { return nil, nil }
		time.AfterFunc(time.Minute, func() { close(enough) })
		began := time.Now()
		results, err := r.runJobs(t.Context(), []job{newJob(&journal.Record{Volume: "a"}, done), newJob(&journal.Record{Volume: "b"}, done)})
		if err != nil || time.Since(began) != time.Minute || results[0].Outcome != Done || results[1].Outcome != Left {
			t.Errorf("%+v after %s: %v", results, time.Since(began), err)
		}
		if len(told) != 2 || !strings.HasSuffix(told[0], "(--pause)") || told[1] != "no further volume is started: interrupted" {
			t.Errorf("%q", told)
		}
	})
}
