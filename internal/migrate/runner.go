package migrate

import (
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// A Lease keeps two operators apart.
type Lease interface {
	// Held returns nil while no other process may migrate.
	Held() error
}

// A Runner migrates volumes, and takes them back. It is killable at any instant:
// who starts again looks at the cluster and the journal, and goes on or back.
type Runner struct {
	Client *objects.Client
	// Planner repeats the preflight checks of a volume right before it is replaced.
	Planner *Planner
	Journal *journal.Journal
	Lease   Lease
	Options Options
	// Enough, if it is closed, has the runner stop at the next safe point: no
	// volume is begun, and those under way leave the window in which there is no
	// PersistentVolume. The context of a call ends it at once.
	Enough <-chan struct{}
	// Progress is told of what happens, one event after the other.
	Progress func(Event)
	Now      func() time.Time

	telling sync.Mutex
}

// Options are what a person says.
type Options struct {
	// Mode is the most that may become of pods: Live leaves all of them alone,
	// Rolling restarts one, Offline waits until a person has stopped them. Each
	// includes those that ask for less of the pods.
	Mode journal.Mode
	// Accept are names of checks with a decision that a person has made (Check.Name).
	Accept               []string
	RestoreReclaimPolicy bool
	// Width is how many volumes are under way at the same time; zero: 1.
	Width int
	// PerNode is how many of them may have pods on one node; zero: any number.
	PerNode int
	// Pause is how long after a wave of Width volumes the next one starts.
	Pause time.Duration
	// Until is when no further volume is started; zero: never.
	Until time.Time
	// MaxFailures is after how many unexpected errors no further volume is started; zero: 1.
	MaxFailures int
	// Timeout bounds each wait; zero: 5 min.
	Timeout time.Duration
	// By is user@host, Version the program's.
	By, Version string
}

// An EventKind is what an event tells.
type EventKind string

// What events tell.
const (
	Begun    EventKind = "Begun"   // the volume is under way
	Reached  EventKind = "Reached" // Stage was reached, after Took
	Waiting  EventKind = "Waiting" // Text says for what; Stage comes next
	Troubled EventKind = "Trouble" // Text says what is tried again, or what comes next
	Over     EventKind = "Over"    // nothing more is done for it: Result
	Paused   EventKind = "Paused"  // of no volume: Text says why none is started now, or any more
)

// An Event is something that has happened, mostly to a volume.
type Event struct {
	At        time.Time         `json:"at"`
	Volume    string            `json:"volume,omitempty"`
	Claim     string            `json:"claim,omitempty"`
	ClaimUID  string            `json:"claimUID,omitempty"`
	Direction journal.Direction `json:"direction"`
	What      EventKind         `json:"what"`
	Stage     journal.Stage     `json:"stage,omitempty"`
	Took      time.Duration     `json:"took,omitempty"`
	Text      string            `json:"text,omitempty"`
	Result    *Result           `json:"result,omitempty"`
}

// An Outcome is what came of a volume in the end.
type Outcome string

// The outcomes.
const (
	Done        Outcome = "Done"
	Left        Outcome = "Left"        // nothing was done; Why says why
	Undecided   Outcome = "Unknown"     // nothing was done: whether it can be migrated could not be found out
	Later       Outcome = "Later"       // it was not started before Options.Until
	PutBack     Outcome = "PutBack"     // it is what it was; Why says why
	Unfinished  Outcome = "Unfinished"  // Why says why; resume and rollback go on
	Interrupted Outcome = "Interrupted" // by a person; resume and rollback go on
)

// A Result is what came of a volume.
type Result struct {
	Volume    string            `json:"volume"`
	Claim     string            `json:"claim,omitempty"`
	Direction journal.Direction `json:"direction"`
	Mode      journal.Mode      `json:"mode,omitempty"`
	Outcome   Outcome           `json:"outcome"`
	Stage     journal.Stage     `json:"stage"`
	Why       string            `json:"why,omitempty"`
	// Lost is how long the claim had no volume, TakenOver how long after the new
	// volume was there all kubelets had it. Zero: it is not known, or was not.
	Lost      time.Duration `json:"lost,omitempty"`
	TakenOver time.Duration `json:"takenOver,omitempty"`
	Took      time.Duration `json:"took,omitempty"`
	Requests  int           `json:"requests,omitempty"`
}

// A Task is a volume that is to be migrated, and how.
type Task struct {
	Volume *PlannedVolume
	Mode   journal.Mode
}

// tell tells of an event; one after the other.
func (r *Runner) tell(e Event) {
	if r.Progress == nil {
		return
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	e.At = r.Now().UTC()
	r.Progress(e)
}
