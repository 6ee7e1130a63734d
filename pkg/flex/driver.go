package flex

import (
	"context"
	"slices"
	"time"
)

// Driver is a FlexVolume driver: its capabilities and one function for all callouts.
type Driver struct {
	// Capabilities answer init. The zero value denies everything, expansion too:
	// [DefaultCapabilities] has what suits most drivers.
	Capabilities Capabilities

	// Callouts are those that Handle does; nil: all but init, which [Run] answers, and
	// getvolumename, which is best left to the kubelet.
	//
	// Any other is answered "Not supported" whatever the arguments, which the kubelet
	// remembers (plugin.go:286-302); then it does something of its own, said at each
	// [Command], that may not be what you want. For "not now" return an error.
	Callouts []Command

	// Handle does a callout. The constants of [Command] say what each gets, when it is
	// called, what it must do and what it answers: [Success], with Device or the like
	// set. An error is a Failure with its text, redacted, and the status does not count.
	//
	// The context ends at the callout's deadline and at SIGTERM; Handle then has to end
	// what it started, children too, and return within a second (300 ms after a signal).
	// Every callout can come again after a call that completed, or that was killed on its
	// way, and must succeed then. Handle runs in many processes at the same time, for the
	// same volume too. Nil: the driver does nothing.
	Handle func(context.Context, *Call) (DriverStatus, error)

	// Plan returns the steps that a callout would take now, for --dry-run. It must only
	// read. Its error is the one with which the callout would fail before its first step.
	Plan func(context.Context, *Call) ([]string, error)

	// Timeout gives the deadline of a callout. Where it is nil or returns
	// nothing above 0, [DefaultTimeout] holds.
	Timeout func(Command) time.Duration
}

// does reports whether c is for Handle.
func (d *Driver) does(c Command) bool {
	switch {
	case d.Handle == nil:
		return false
	case d.Callouts == nil:
		return c.Known() && c != CommandGetVolumeName
	}
	return c.Known() && slices.Contains(d.Callouts, c)
}

// DefaultTimeout returns the deadline of a callout for which the driver sets none: 10 s
// for init and getvolumename; 9 minutes for waitforattach, for which the kubelet waits 10
// (pkg/kubelet/volumemanager/volume_manager.go:90); 110 s for the others, for which the
// kubelet itself would wait for ever, and which it repeats every two minutes at most.
func DefaultTimeout(c Command) time.Duration {
	switch c {
	case CommandInit, CommandGetVolumeName:
		return 10 * time.Second
	case CommandWaitForAttach:
		return 9 * time.Minute
	default:
		return 110 * time.Second
	}
}

func (d *Driver) timeout(c Command) time.Duration {
	if d.Timeout != nil {
		if t := d.Timeout(c); t > 0 {
			return t
		}
	}
	return DefaultTimeout(c)
}
