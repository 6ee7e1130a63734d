package crash

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/trace"
)

// A variant is what happens after the kill.
type variant int

const (
	// again: the same call comes at once, while the kernel may still be
	// taking down what the killed process had.
	again variant = iota
	// later: no call comes; nothing may be left. Then the same call comes.
	later
	// undone: the volume is taken down without the call being repeated.
	undone
	// reversed: a call that took something down is not repeated; what set
	// that up is called again.
	reversed
	// skipped: the call is not repeated, and the life goes on.
	skipped
)

func (v variant) String() string {
	return [...]string{"again", "later", "undone", "reversed", "skipped"}[v]
}

// A point is one way to die.
type point struct {
	name     string
	variants []variant
	// tracer makes the tracer that kills there; a tracer serves once.
	tracer func() *trace.Tracer
}

// counts are what a test has done.
type counts struct {
	points, kills, calls, finished, failures int
}

func (c *counts) add(o counts) {
	c.points += o.points
	c.kills += o.kills
	c.calls += o.calls
	c.finished += o.finished
	c.failures += o.failures
}

func (c counts) String() string {
	return fmt.Sprintf("%d kill points, %d kills (%d after the mount could be seen), %d calls, failures = %d", c.points, c.kills, c.finished, c.calls, c.failures)
}

// mostFailures of one victim are reported.
const mostFailures = 5

// A matrix is the kills of one life.
type matrix struct {
	*world
	life  []call
	count counts
}

func all() bool { return os.Getenv("CRASH_ALL") != "" }

// kill goes through the points of one victim, the call at index i.
func (m *matrix) kill(t *testing.T, i int, points []point) {
	t.Helper()
	start, before := time.Now(), m.count
	for _, p := range points {
		m.count.points++
		for _, v := range p.variants {
			if err := m.one(i, p, v); err != nil {
				m.count.failures++
				t.Errorf("%s, killed after %s, then %s: %v", m.life[i], p.name, v, err)
				m.scrub()
			}
			if m.count.failures-before.failures >= mostFailures {
				t.Fatalf("%s: no more kills after %d failures", m.life[i], mostFailures)
			}
		}
	}
	t.Logf("%-28s %3d points, %4d kills in %v", m.life[i], m.count.points-before.points, m.count.kills-before.kills, time.Since(start).Round(time.Millisecond))
}

// one leads one life with one kill in it.
func (m *matrix) one(i int, p point, v variant) error {
	if err := m.reach(i); err != nil {
		return err
	}
	victim := m.life[i]
	r, err := m.trace(victim, p.tracer())
	if err != nil {
		return err
	}
	if len(r.Survivors) > 0 {
		return fmt.Errorf("killed after %s, which %v survived", r.Hit, r.Survivors)
	}
	if !r.Killed {
		return m.ranThrough(i, v, r)
	}
	m.count.kills++
	visible, err := m.asExpected(m.target(victim))
	if err != nil {
		return fmt.Errorf("at once after %s: %w", r.Hit, err)
	}
	if visible && !victim.undoes() {
		m.count.finished++
	}
	return m.afterwards(i, v, visible)
}

// reach makes the calls before the victim.
func (m *matrix) reach(i int) error {
	if err := m.begin(); err != nil {
		return err
	}
	for _, c := range m.life[:i] {
		if err := m.undisturbed(c); err != nil {
			return fmt.Errorf("before the kill: %w", err)
		}
	}
	return nil
}

// undisturbed makes a call, checks what has come of it and uses the volume.
func (m *matrix) undisturbed(c call) error {
	if err := m.call(c); err != nil {
		return err
	}
	return m.done(c)
}

func (m *matrix) done(c call) error {
	if _, err := m.asExpected(""); err != nil {
		return fmt.Errorf("after %s: %w", c, err)
	}
	if dir := m.target(c); m.mounted[dir] {
		if err := m.use(dir); err != nil {
			return fmt.Errorf("after %s: %w", c, err)
		}
		if err := m.unmarked(); err != nil {
			return fmt.Errorf("after %s: %w", c, err)
		}
	}
	return nil
}

// afterwards follows a kill to the end of the life.
func (m *matrix) afterwards(i int, v variant, visible bool) error {
	victim := m.life[i]
	if v == later {
		if err := m.settled(visible); err != nil {
			return fmt.Errorf("without another call: %w", err)
		}
		var err error
		if visible, err = m.asExpected(m.target(victim)); err != nil {
			return fmt.Errorf("without another call: %w", err)
		}
		if err := m.noDebris(m.volume.attach); err != nil {
			return fmt.Errorf("without another call: %w", err)
		}
	}
	repeat := []call{victim}
	switch v {
	case undone, skipped:
		m.mounted[m.target(victim)] = visible
		repeat = nil
	case reversed:
		m.mounted[m.target(victim)] = visible
		repeat = []call{m.setUpOf(i), victim}
	}
	for _, c := range repeat {
		if err := m.undisturbed(c); err != nil {
			return fmt.Errorf("repeated: %w", err)
		}
	}
	return m.finish(i+1, v == undone)
}

// setUpOf returns the call that set up what the call at i takes down.
func (m *matrix) setUpOf(i int) call {
	for _, c := range m.life[:i] {
		if c.undoneBy() == m.life[i].command && c.pod == m.life[i].pod {
			return c
		}
	}
	panic("a life that takes down what it never set up")
}

// finish makes the rest of the calls, or of those that take down.
func (m *matrix) finish(i int, onlyUndo bool) error {
	for _, c := range m.life[i:] {
		if onlyUndo && !c.undoes() {
			continue
		}
		if err := m.undisturbed(c); err != nil {
			return fmt.Errorf("after the kill: %w", err)
		}
	}
	return m.nothingLeft()
}

// ranThrough is for a victim that made fewer system calls this time, or that
// survived the death of a child.
func (m *matrix) ranThrough(i int, v variant, r *trace.Result) error {
	if err := m.judge(m.life[i], r.Answer); err != nil {
		return m.honest(i, v, r, err)
	}
	if err := m.done(m.life[i]); err != nil {
		return err
	}
	return m.finish(i+1, false)
}

// honest checks a call that has answered with a failure: it must have left
// nothing, and succeed the next time.
func (m *matrix) honest(i int, v variant, r *trace.Result, failure error) error {
	if r.Hit.Program == "" {
		return failure // nothing was done to it
	}
	visible, err := m.asExpected(m.target(m.life[i]))
	if err != nil {
		return fmt.Errorf("after the answer %w: %w", failure, err)
	}
	if visible && !m.mounted[m.target(m.life[i])] {
		return fmt.Errorf("%w: and yet it is mounted", failure)
	}
	m.count.kills++
	return m.afterwards(i, v, visible)
}
