package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

const defaultTimeout = 5 * time.Minute

func (r *Runner) timeout() time.Duration { return cmp.Or(r.Options.Timeout, defaultTimeout) }

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

// job is a volume that is under way.
type job struct {
	// busy is what only one volume at a time may restart; empty: nothing is.
	busy   string
	record *journal.Record
	// begin is set by Apply, Resume and Rollback. nil, nil: nothing is to be done.
	begin func(ctx context.Context) (*migration, error)
}

// each works on the jobs, at most Options.Width at a time. After the first unexpected error it
// starts no more; those under way continue to their end.
func (r *Runner) each(ctx context.Context, jobs []job) ([]Result, error) {
	q := &queue{left: make([]int, 0, len(jobs)), busy: map[string]bool{}}
	q.changed = sync.NewCond(&q.mu)
	for i := range jobs {
		q.left = append(q.left, i)
	}
	results := make([]Result, len(jobs))
	for i, j := range jobs {
		results[i] = resultOf(j.record)
		results[i].Outcome, results[i].Why = Left, "it was not begun"
	}
	var all sync.WaitGroup
	for range min(max(1, r.Options.Width), len(jobs)) {
		all.Go(func() {
			for {
				i := q.next(jobs, r.enough)
				if i < 0 {
					return
				}
				results[i] = r.carryOut(ctx, jobs[i])
				q.done(jobs[i], results[i].Outcome == Done)
			}
		})
	}
	all.Wait()
	return results, nil
}

// queue gives out jobs.
type queue struct {
	mu      sync.Mutex
	changed *sync.Cond
	left    []int
	busy    map[string]bool
	stop    bool
}

// next is the number of a job that may be begun; -1: none.
func (q *queue) next(jobs []job, enough func() bool) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.stop || enough() || len(q.left) == 0 {
			return -1
		}
		at := slices.IndexFunc(q.left, func(i int) bool { return !q.busy[jobs[i].busy] })
		if at < 0 {
			q.changed.Wait()
			continue
		}
		i := q.left[at]
		q.left = slices.Delete(q.left, at, at+1)
		if jobs[i].busy != "" {
			q.busy[jobs[i].busy] = true
		}
		return i
	}
}

func (q *queue) done(j job, well bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy[j.busy] = false
	q.stop = q.stop || !well
	q.changed.Broadcast()
}

// carryOut takes one volume to its end, or as far as it gets.
func (r *Runner) carryOut(ctx context.Context, j job) (result Result) {
	began := r.Now()
	rec := j.record
	r.tell(Event{Volume: rec.Volume, Claim: rec.Claim, Direction: rec.Direction, What: Begun, Stage: rec.Stage})
	m, err := j.begin(ctx)
	switch {
	case m == nil && err == nil:
		result = resultOf(j.record)
		result.Outcome, result.Why = Done, "it was finished already"
	case m == nil:
		result = resultOf(j.record)
		result.Outcome, result.Why = Left, err.Error()
	default:
		if err == nil {
			err = m.run(ctx)
		}
		if err != nil && ctx.Err() != nil {
			err = context.Canceled
		}
		m.inTrouble(err)
		result = m.result(err)
	}
	result.Took = r.Now().Sub(began)
	r.tell(Event{Volume: result.Volume, Claim: result.Claim, Direction: result.Direction, What: Over, Stage: result.Stage, Took: result.Took, Text: result.Why, Result: &result})
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
		if err := m.stays(ctx); err != nil { // then it is unfinished, and resumed
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
	result.Lost = between(rec.Times[journal.Deleted], rec.Times[journal.Bound])
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
	case rec.Stage == journal.Planned: // the journal could not be written
		result.Outcome, result.Why = Left, err.Error()
	default:
		result.Outcome, result.Why = Unfinished, err.Error()
	}
	return result
}

func between(from, to time.Time) time.Duration {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return to.Sub(from)
}
