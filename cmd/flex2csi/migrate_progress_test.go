package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
)

// TestProgress: a line for each event, in a log as at a terminal, where one line
// more is the last. Neither has a text that a terminal would obey: a log is read with cat.
func TestProgress(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 4, 5, 0, time.UTC)
	events := []migrate.Event{
		{Volume: "pv1", What: migrate.Begun, Direction: journal.ToCSI},
		{Volume: "pv1", What: migrate.Reached, Stage: journal.Retained, Took: 123456 * time.Microsecond},
		{Volume: "pv2", What: migrate.Begun, Direction: journal.ToFlexVolume},
		{Volume: "pv1", What: migrate.Waiting, Stage: journal.Bound, Text: "the claim is Lost"},
		{Volume: "pv1", What: migrate.Troubled, Text: "the API server has not answered; it is tried again"},
		{Volume: "pv1", What: migrate.Over, Result: &migrate.Result{Outcome: migrate.Done, Direction: journal.ToCSI, Lost: 65 * time.Millisecond, TakenOver: 72 * time.Second}},
		{Volume: "pv2", What: migrate.Over, Result: &migrate.Result{Outcome: migrate.Unfinished, Direction: journal.ToFlexVolume, Why: "refused \x1b[2J\u202e"}}, // by a webhook
		{What: migrate.Paused, Text: "no further volume is started: 1 failed (--max-failures 1)"},
	}
	show := func(terminal bool) (shown, kept string) {
		var out, log bytes.Buffer
		p := newProgress(&out, terminal, &log, 2)
		p.start, p.now = at, func() time.Time { return at.Add(83 * time.Second) }
		end := p.run()
		for _, e := range events {
			e.At = at
			p.tell(e)
		}
		end()
		return out.String(), log.String()
	}
	clock := at.Local().Format(time.TimeOnly)
	want := `pv1                  begun
pv1                  Retained after 120ms
pv2                  begun to go back to the FlexVolume
pv1                  waiting: the claim is Lost
pv1                  TROUBLE: the API server has not answered; it is tried again
pv1                  migrated; the claim was Lost for 70ms; taken over after 1m12s
pv2                  NOT FINISHED: refused \u001b[2J\u202e
no further volume is started: 1 failed (--max-failures 1)
`
	lines, log := show(false)
	if diff := cmp.Diff(want, strings.ReplaceAll(lines, clock+" ", "")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, strings.ReplaceAll(log, "2026-11-22T03:04:05Z ", "")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	shown, _ := show(true)
	for _, last := range []string{"0/2 done, 2 under way, 1 in trouble, 01:23\r\x1b[K", "1/2 done, 0 under way, 1 in trouble, 01:23\r\x1b[K"} {
		if !strings.Contains(shown, last) {
			t.Errorf("no %q in %q", last, shown)
		}
	}
	if !strings.HasSuffix(shown, "\r\x1b[K") {
		t.Errorf("the last line stays: %q", shown)
	}
}

// TestResults: only what was done counts as done.
func TestResults(t *testing.T) {
	r := results{
		all: []migrate.Result{
			{Volume: "a", Claim: "ns/a", Outcome: migrate.Done, Stage: journal.Finished, Lost: time.Second, Requests: 41},
			{Volume: "b", Outcome: migrate.Unfinished, Stage: journal.Bound, Why: "timeout"},
			{Volume: "c", Outcome: migrate.PutBack, Stage: journal.Finished, Why: "the pod came back"},
			{Volume: "d", Outcome: migrate.Interrupted, Stage: journal.Attached},
		},
		left:    []migrate.Result{{Volume: "e", Claim: "ns/e", Outcome: migrate.Left}, {Volume: "f", Outcome: migrate.Left}, {Volume: "g", Outcome: migrate.Left}},
		named:   []string{"ns/e", "g"},
		already: []string{"g"},
	}
	later := migrate.Result{Volume: "h", Claim: "ns/h", Outcome: migrate.Later, Why: "it was not started: --until 05:00"}
	r.all = append(r.all, later, migrate.Result{Volume: "i", Outcome: migrate.Later, Why: later.Why})
	const want = "not finished: b; interrupted: d; put back: c; left as it was: e. flex2csi migrate status shows how they are, resume goes on, rollback goes back"
	if err := r.err(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := (&results{all: r.all[:1], left: r.left[1:2]}).err(); err != nil {
		t.Error(err)
	}
	if err := (&results{all: r.all[2:3], back: true}).err(); err != nil {
		t.Errorf("rollback wanted the FlexVolume: %v", err)
	}
	if err := (&results{all: []migrate.Result{later}, named: []string{"ns/h"}}).err(); err == nil || err.Error() != "left as it was: h" {
		t.Errorf("it was named: %v", err)
	}
	var out bytes.Buffer
	if err := r.show(report.Table).Write(&out, report.Table); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"a       ns/a   migrated      Finished  1s        -                 -     41\n", "\nc: PUT BACK: the pod came back\n", "\nh, i: later: it was not started: --until 05:00\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("no %q in\n%s", line, out.String())
		}
	}
	if got := some([]string{"1", "2", "3", "4", "5", "6", "7"}); got != "1, 2, 3, 4, 5 and 2 more" {
		t.Error(got)
	}
}
