package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

const defaultTimeout = 5 * time.Minute

func (r *Runner) timeout() time.Duration { return r.Options.timeout() }

func (o Options) timeout() time.Duration { return cmp.Or(o.Timeout, defaultTimeout) }

// enough: a person has interrupted.
func (r *Runner) enough() bool {
	select {
	case <-r.Enough:
		return true
	default:
		return false
	}
}

// enoughOutside is Enough, but in the window, which is left first.
func (r *Runner) enoughOutside(window bool) <-chan struct{} {
	if window {
		return nil
	}
	return r.Enough
}

// job is a volume to work on.
type job struct {
	slot
	record *journal.Record
	// begin is set by Apply, Resume and Rollback. nil, nil: nothing is to be done.
	begin func(ctx context.Context) (*migration, error)
}

func newJob(rec *journal.Record, begin func(context.Context, *journal.Record) (*migration, error)) job {
	s := slot{busy: restarts(rec)}
	for _, p := range rec.Pods {
		s.nodes = append(s.nodes, p.Node)
	}
	s.nodes = compact(s.nodes)
	return job{slot: s, record: rec, begin: func(ctx context.Context) (*migration, error) { return begin(ctx, rec) }}
}

// runJobs works on the jobs, and starts them as the limits of the options allow. Those under way
// continue to their end.
func (r *Runner) runJobs(ctx context.Context, jobs []job) ([]Result, error) {
	q := &queue{runner: r, jobs: jobs, ended: make(chan int), results: make([]Result, len(jobs))}
	for i := range jobs {
		q.left = append(q.left, i)
	}
	enough := r.Enough
	r.feeds().expect(len(jobs))
	for {
		d := q.decide(ctx)
		q.tell(d)
		switch {
		case d.start >= 0:
			q.start(ctx, d.start)
			continue
		case len(q.underWay) == 0 && d.again.IsZero():
			q.leave(d)
			return q.results, nil
		}
		var again <-chan time.Time
		if !d.again.IsZero() {
			again = time.After(d.again.Sub(r.Now()))
		}
		select {
		case i := <-q.ended:
			q.end(i)
		case <-again:
		case <-enough:
			enough = nil
		}
	}
}

// queue gives out jobs. Only runJobs uses it.
type queue struct {
	runner         *Runner
	jobs           []job
	left, underWay []int // numbers of jobs
	failed, wave   int
	lastEnd        time.Time
	told           string
	ended          chan int
	results        []Result
}

// decide decides by the nodes that the pods are on now, since a run may take hours.
func (q *queue) decide(ctx context.Context) decision {
	r, l := q.runner, q.runner.Options.limits()
	w := newWorld(r.Client, r.feeds())
	for {
		d := l.next(run{
			now: r.Now(), left: q.slots(q.left), underWay: q.slots(q.underWay),
			failed: q.failed, ended: q.wave, lastEnd: q.lastEnd, interrupted: r.enough() || ctx.Err() != nil,
		})
		if d.start < 0 || l.perNode == 0 {
			return d
		}
		j := &q.jobs[q.left[d.start]]
		nodes, err := w.nodesOf(ctx, j.record.Claim)
		if err != nil || slices.Equal(nodes, j.nodes) { // without an answer, what was known
			return d
		}
		j.nodes = nodes
	}
}

func (q *queue) slots(numbers []int) (all []slot) {
	for _, i := range numbers {
		all = append(all, q.jobs[i].slot)
	}
	return all
}

// tell tells once why no volume is started.
func (q *queue) tell(d decision) {
	text := ""
	switch {
	case d.over != "":
		text = "no further volume is started: " + d.over
	case !d.again.IsZero():
		text = "the next volume is started at " + d.again.Local().Format(time.TimeOnly) + " (--pause)"
	}
	if text != "" && text != q.told {
		q.runner.tell(Event{What: Paused, Text: text})
	}
	q.told = text
}

func (q *queue) start(ctx context.Context, at int) {
	i := q.left[at]
	q.left = slices.Delete(q.left, at, at+1)
	if len(q.underWay) == 0 {
		q.wave = 0
	}
	q.underWay = append(q.underWay, i)
	go func() {
		q.results[i] = q.runner.carryOut(ctx, q.jobs[i])
		q.ended <- i
	}()
}

func (q *queue) end(i int) {
	q.underWay = slices.DeleteFunc(q.underWay, func(u int) bool { return u == i })
	if q.results[i].Outcome != Done {
		q.failed++
	}
	q.wave++
	q.lastEnd = q.runner.Now()
}

// leave gives their result to those that were not started.
func (q *queue) leave(d decision) {
	for _, i := range q.left {
		q.results[i] = resultOf(q.jobs[i].record)
		q.results[i].Outcome, q.results[i].Why = Left, "it was not started: "+d.over
		if d.late {
			q.results[i].Outcome = Later
		}
	}
}

// nodesOf returns the nodes of the pods of a claim.
func (w *world) nodesOf(ctx context.Context, claim string) (nodes []string, err error) {
	namespace, name, ok := strings.Cut(claim, "/")
	if !ok {
		return nil, nil
	}
	pods, err := w.podsByClaim(ctx, namespace)
	for _, p := range pods[name] {
		nodes = append(nodes, p.Spec.NodeName)
	}
	return compact(nodes), err
}

// compact sorts names, and leaves out empty and equal ones.
func compact(names []string) []string {
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	slices.Sort(names)
	return slices.Compact(names)
}

// contained keeps what goes wrong with a volume from ending the process while others are where
// they have no PersistentVolume.
func contained(err *error) {
	if is := recover(); is != nil {
		*err = fmt.Errorf("internal error of flex2csi: %v; report it, with %s", is, debug.Stack())
	}
}

// goOn has a migration begin, and takes it to its end.
func (j job) goOn(ctx context.Context) (m *migration, err error) {
	defer contained(&err)
	if m, err = j.begin(ctx); m != nil && err == nil {
		err = m.run(ctx)
	}
	return m, err
}

// carryOut takes one volume to its end, or as far as it gets.
func (r *Runner) carryOut(ctx context.Context, j job) (result Result) {
	began := r.Now()
	rec := j.record
	r.tell(Event{Volume: rec.Volume, Claim: rec.Claim, ClaimUID: rec.ClaimUID, Direction: rec.Direction, What: Begun, Stage: rec.Stage})
	m, err := j.goOn(ctx)
	switch {
	case m == nil && err == nil:
		result = resultOf(j.record)
		result.Outcome, result.Why = Done, "it was finished already"
	case m == nil:
		result = resultOf(j.record)
		result.Outcome, result.Why = Left, err.Error()
	default:
		if err != nil && ctx.Err() != nil {
			err = context.Canceled
		}
		m.inTrouble(err)
		result = m.result(err)
	}
	result.Took = r.Now().Sub(began)
	r.tell(Event{Volume: result.Volume, Claim: result.Claim, ClaimUID: rec.ClaimUID, Direction: result.Direction, What: Over, Stage: result.Stage, Took: result.Took, Text: result.Why, Result: &result})
	return result
}

// inTrouble writes down why a volume does not get on. That is for people: it
// may fail, and it has no long time.
func (m *migration) inTrouble(err error) {
	if m.rec.Stage == journal.Planned { // nothing was done, and there may be a record of before
		return
	}
	if err == nil || errors.Is(err, errEnough) || errors.Is(err, context.Canceled) || errors.Is(err, journal.ErrConflict) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookWatched)
	defer cancel()
	if m.refused {
		if err := m.endRefused(ctx); err != nil { // then it is unfinished, and resumed
			m.tell(Troubled, m.rec.Stage, err.Error())
		}
	}
	m.rec.Trouble = err.Error()
	if err := m.save(ctx); err != nil {
		m.tell(Troubled, m.rec.Stage, err.Error())
	}
}

func resultOf(rec *journal.Record) Result {
	return Result{Volume: rec.Volume, Claim: rec.Claim, Direction: rec.Direction, Mode: rec.Mode, Stage: rec.Stage, Requests: rec.Requests}
}

// result is what came of it.
func (m *migration) result(err error) Result {
	rec := m.rec
	rec.Requests = int(m.c.Requests.Load())
	result := resultOf(rec)
	result.Lost = lostFor(rec)
	result.TakenOver = between(rec.Times[journal.Created], rec.Times[journal.TakenOver])
	switch {
	case err == nil && rec.PutBack != "" && rec.PutBack != rolledBack:
		result.Outcome, result.Why = PutBack, rec.PutBack
	case err == nil:
		result.Outcome = Done
	case m.refused:
		result.Outcome, result.Why = Left, err.Error()
	case errors.Is(err, errEnough), errors.Is(err, context.Canceled):
		result.Outcome, result.Why = Interrupted, fmt.Sprintf("interrupted after %s", rec.Stage)
	case rec.Stage == journal.Planned && !errors.Is(err, journal.ErrMaybe), rec.Stage == journal.Finished: // nothing was begun
		result.Outcome, result.Why = Left, err.Error()
	default:
		result.Outcome, result.Why = Unfinished, err.Error()
	}
	return result
}

// lostFor is for how long the claim of a record was Lost.
func lostFor(r *journal.Record) time.Duration {
	return between(r.Times[journal.Deleted], r.Times[journal.Bound])
}

func between(from, to time.Time) time.Duration {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return to.Sub(from)
}
