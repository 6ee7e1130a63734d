package flex

import (
	"context"
	"time"
)

// Driver is a FlexVolume driver: its capabilities and a function per callout.
// A nil function means that the driver never does this; it is answered "Not
// supported", whatever the arguments.
type Driver struct {
	Capabilities  Capabilities
	GetVolumeName func(context.Context, *Call) (volumeName string, err error)
	Attach        func(context.Context, *Call) (device string, err error)
	IsAttached    func(context.Context, *Call) (attached bool, err error)
	WaitForAttach func(context.Context, *Call) (device string, err error)
	MountDevice   func(context.Context, *Call) error
	Mount         func(context.Context, *Call) error
	Unmount       func(context.Context, *Call) error
	UnmountDevice func(context.Context, *Call) error
	Detach        func(context.Context, *Call) error
	ExpandVolume  func(context.Context, *Call) error
	ExpandFS      func(context.Context, *Call) error

	// Timeout gives the deadline of a callout. Where it is nil or returns
	// nothing above 0, DefaultTimeout holds.
	Timeout func(Command) time.Duration
}

// DefaultTimeout returns the deadline of a callout for which the driver sets
// none.
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

// callout is any function of a Driver behind one signature.
type callout func(context.Context, *Call) (DriverStatus, error)

// callout returns the driver's function for c, or nil.
func (d *Driver) callout(c Command) callout {
	switch c {
	case CommandGetVolumeName:
		return answering(d.GetVolumeName, func(s *DriverStatus, name string) { s.VolumeName = name })
	case CommandAttach:
		return answering(d.Attach, func(s *DriverStatus, device string) { s.Device = device })
	case CommandIsAttached:
		return answering(d.IsAttached, func(s *DriverStatus, attached bool) { s.Attached = &attached })
	case CommandWaitForAttach:
		return answering(d.WaitForAttach, func(s *DriverStatus, device string) { s.Device = device })
	case CommandMountDevice:
		return plain(d.MountDevice)
	case CommandMount:
		return plain(d.Mount)
	case CommandUnmount:
		return plain(d.Unmount)
	case CommandUnmountDevice:
		return plain(d.UnmountDevice)
	case CommandDetach:
		return plain(d.Detach)
	case CommandExpandVolume:
		return plain(d.ExpandVolume)
	case CommandExpandFS:
		return plain(d.ExpandFS)
	}
	return nil
}

func answering[T any](f func(context.Context, *Call) (T, error), set func(*DriverStatus, T)) callout {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, call *Call) (DriverStatus, error) {
		value, err := f(ctx, call)
		status := DriverStatus{Status: StatusSuccess}
		set(&status, value)
		return status, err
	}
}

func plain(f func(context.Context, *Call) error) callout {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, call *Call) (DriverStatus, error) {
		return DriverStatus{Status: StatusSuccess}, f(ctx, call)
	}
}
