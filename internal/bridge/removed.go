package bridge

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A driver may be taken out of the configuration while pods have its volumes. They
// end as others do: that needs the record and the socket only. Nothing else is done
// for them: what a set-up needs, such as secrets, was in the configuration.

// undoer returns the driver that undoes what a record says: that of the configuration
// or, if it has none, the one that the record knows where to find.
func (b *Bridge) undoer(r *volstate.Record) (*FlexDriver, error) {
	d, err := b.driverOf(r)
	if err == nil || b.Removed == nil || r.Endpoints == nil {
		return d, err
	}
	return b.Removed(r.FlexDriver, r.Driver, *r.Endpoints), nil
}

// undoerOf is undoer in a callout of a driver. Where there is nothing any more, there
// is nothing to ask a driver for.
func (b *Bridge) undoerOf(d *FlexDriver, r *volstate.Record) (*FlexDriver, error) {
	if r.Idle() || d.CSIDriver == r.Driver {
		return d, nil
	}
	return b.undoer(r)
}

// Configured is an error for a driver that the configuration does not have.
func (b *Bridge) Configured(name string) error {
	if _, ok := b.Drivers[name]; ok {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "the configuration of flex2csi on this node has no driver %s; add it and restart the daemon", name)
}

// removed returns the callouts of a driver that the configuration does not have.
func (b *Bridge) removed(name string) (*flex.Driver, error) {
	missing := b.Configured(name)
	if b.Removed == nil {
		return nil, missing
	}
	d := &FlexDriver{Name: name}
	// What no record knows may be of any driver. Nothing being there is what unmount
	// is for, and may be called again.
	known := func(undo func(context.Context, *FlexDriver, *flex.Call) error) func(context.Context, *flex.Call) error {
		return func(ctx context.Context, c *flex.Call) error {
			if _, ok := b.find(c.Dir); !ok {
				if mounted, err := b.Mounts.Mounted(c.Dir); err != nil || mounted {
					return missing
				}
			}
			return undo(ctx, d, c)
		}
	}
	no := func(context.Context, *flex.Call) error { return missing }
	return &flex.Driver{
		Attach:        func(context.Context, *flex.Call) (string, error) { return "", missing },
		IsAttached:    func(context.Context, *flex.Call) (bool, error) { return false, missing },
		WaitForAttach: func(context.Context, *flex.Call) (string, error) { return "", missing },
		Detach:        func(ctx context.Context, c *flex.Call) error { return b.detach(ctx, d, c) },
		MountDevice:   no,
		UnmountDevice: known(b.unmountDevice),
		Mount:         no,
		Unmount:       known(b.unmount),
		ExpandFS:      no,
		ExpandVolume:  no,
	}, nil
}
