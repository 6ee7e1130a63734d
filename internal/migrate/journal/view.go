package journal

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// processAnnotation is the annotation by which a Lease names its holder's process.
const processAnnotation = "flex2csi.io/lease-process"

// A LockView is what a Lease says.
type LockView struct {
	Holder string // empty: none
	// Process is the holder's, by which it can be told whether that is dead; empty:
	// that is not known.
	Process string
	Renewed time.Time
	// Duration is after how long it ends if it is not renewed.
	Duration time.Duration
}

// LockViewOf returns what a Lease says; nil: there is none.
func LockViewOf(o *coordinationv1.Lease) (v LockView) {
	if o == nil {
		return v
	}
	v.Process = o.Annotations[processAnnotation]
	if o.Spec.HolderIdentity != nil {
		v.Holder = *o.Spec.HolderIdentity
	}
	if o.Spec.RenewTime != nil {
		v.Renewed = o.Spec.RenewTime.UTC()
	}
	if o.Spec.LeaseDurationSeconds != nil {
		v.Duration = time.Duration(*o.Spec.LeaseDurationSeconds) * time.Second
	}
	return v
}

// Free reports whether the Lease has no holder, or one that is dead for certain.
func (v LockView) Free(dead func(process string) bool) bool {
	return v.Holder == "" || (v.Process != "" && dead != nil && dead(v.Process))
}

// Over reports whether it seems to have ended, for who only looks once. The holder
// has written the time by its own clock: so it has as long again, and one that is
// renewed does not seem to be over where clocks differ. Who takes a Lease goes by no other
// clock than its own.
func (v LockView) Over(now time.Time) bool { return now.After(v.Renewed.Add(2 * v.Duration)) }
