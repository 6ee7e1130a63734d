package clusterview

import "time"

// LeaseProcess is the annotation by which a Lease names its holder's process.
const LeaseProcess = "flex2csi.io/lease-process"

// A Lease is what one that keeps two apart says.
type Lease struct {
	Holder string // empty: nobody
	// Process is the holder's, by which it can be told whether that is dead; empty:
	// nobody can tell.
	Process string
	Renewed time.Time
	// Duration is after how long it ends if it is not renewed.
	Duration time.Duration
}

// Free reports whether nobody holds it, or somebody who is dead for certain.
func (l Lease) Free(dead func(process string) bool) bool {
	return l.Holder == "" || l.Process != "" && dead != nil && dead(l.Process)
}

// Over reports whether it seems to have ended, for who only looks once. The holder
// has written the time by its own clock: so it has as long again, lest one that is
// renewed seems to be over where clocks differ. Who takes a Lease goes by no other
// clock than its own.
func (l Lease) Over(now time.Time) bool { return now.After(l.Renewed.Add(2 * l.Duration)) }
