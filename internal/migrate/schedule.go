package migrate

import (
	"fmt"
	"slices"
	"time"
)

// limits say when a volume may be started. Zero values limit nothing, but of width and
// failures zero is one.
type limits struct {
	width, perNode, failures int
	pause                    time.Duration
	until                    time.Time
}

func (o Options) limits() limits {
	return limits{width: max(1, o.Width), perNode: o.PerNode, failures: max(1, o.MaxFailures), pause: o.Pause, until: o.Until}
}

// A slot is what the schedule knows of a volume.
type slot struct {
	// busy is what only one volume at a time may restart; empty: nothing is.
	busy  string
	nodes []string // of its pods
}

// A run is how a run is at a moment.
type run struct {
	now         time.Time
	left        []slot // not started, in their order
	underWay    []slot
	failed      int
	ended       int       // volumes of this wave
	lastEnd     time.Time // of one of them
	interrupted bool
}

// A decision is what may happen now.
type decision struct {
	start int       // the number of a volume in run.left; -1: none
	again time.Time // when to decide again; zero: when a volume has ended
	// over is why no volume is started any more; empty: some will be. late: because of the
	// time alone.
	over string
	late bool
}

// next decides which volume may be started. Volumes under way are never stopped.
//
// With a pause volumes go in waves: up to width are started, all of them end, and the pause
// follows.
func (l limits) next(r run) decision {
	no := decision{start: -1}
	newWave := r.lastEnd.Add(l.pause)
	waits := l.pause > 0 && r.ended > 0 && (len(r.underWay) > 0 || r.now.Before(newWave))
	switch {
	case len(r.left) == 0:
	case r.interrupted:
		no.over = "interrupted"
	case r.failed >= l.failures:
		no.over = fmt.Sprintf("%d failed (--max-failures %d)", r.failed, l.failures)
	case !l.until.IsZero() && (!r.now.Before(l.until) || (waits && len(r.underWay) == 0 && !newWave.Before(l.until))):
		no.over, no.late = "--until "+l.until.Format(time.RFC3339), true
	case waits && len(r.underWay) == 0:
		no.again = newWave
	case waits, len(r.underWay) >= l.width:
	default:
		no.start = slices.IndexFunc(r.left, func(s slot) bool { return l.fits(s, r.underWay) })
	}
	return no
}

// fits reports whether a volume may be under way together with others.
func (l limits) fits(s slot, underWay []slot) bool {
	count := map[string]int{}
	for _, u := range underWay {
		if s.busy != "" && s.busy == u.busy {
			return false
		}
		for _, node := range u.nodes {
			count[node]++
		}
	}
	return l.perNode == 0 || !slices.ContainsFunc(s.nodes, func(node string) bool { return count[node] >= l.perNode })
}
