package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// A plan is all that a world is made from.
type plan struct {
	Name string
	Seed uint64
	// Dir is an empty directory with a short name.
	Dir string
	// Duration and Cycles end the campaign: whichever comes first; a zero one
	// does not.
	Duration time.Duration
	Cycles   int
	// Round is how long faults last between two looks at what is left.
	Round time.Duration

	Daemon, Flexdriver       string // programs
	NewDaemon, NewFlexdriver string // other builds of them
	// Driver are flags of the CSI driver.
	Driver []string
	// Images: volumes are disks with a filesystem, and not directories.
	Images bool
	// NoStage and Attach are what the flags of the driver come to.
	NoStage, Attach bool
	Volumes, Pods   int
	// Exec is how many of a hundred callouts flexdriver makes; the others are
	// made as it makes them, in this process, which is faster.
	Exec int32
	// Grace is the daemon's.
	Grace time.Duration
	// Play is what happens in the world; plays_test.go.
	Play string
	// All is for kills after every system call, and not only those that matter
	// most.
	All bool
	// RPC is the deadline of each call of the driver.
	RPC time.Duration
}

// random returns a source of its own for everything that has a name, so that
// one thing does not change the dice of another.
func (p *plan) random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return rand.New(rand.NewPCG(p.Seed, h.Sum64()))
}

// upTo returns a random duration.
func upTo(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most) + 1))
}

// A report is what has come of a world.
type report struct {
	Counts map[string]int
	// Wrong is what should never be.
	Wrong []string

	// Notes are figures for people.
	Notes []string

	mu      sync.Mutex
	longest time.Duration
}

// What is counted.
const (
	countCycles  = "cycles" // of a volume in a pod: mounted, used, unmounted
	countFailed  = "failed callouts"
	countCalls   = "callouts"
	countForgot  = "forgotten"             // set-ups that failed, with pods that were deleted then
	countSkipped = "mounts without a call" // it was a mount point already
	countOrphans = "late mounts"           // of forgotten set-ups
	countHalf    = "direct mounts taken for finished"
	countRounds  = "rounds"
)

func (r *report) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	r.Counts[what]++
}

func (r *report) counted(what string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Counts[what]
}

// took notes how long a call took.
func (r *report) took(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.longest = max(r.longest, d)
}

func (r *report) longestCall() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.longest
}

// mostWrong bounds the report.
const mostWrong = 20

func (r *report) wrong(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Wrong) < mostWrong {
		r.Wrong = append(r.Wrong, text)
	}
}

func (r *report) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *report) broken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.Wrong) > 0
}
