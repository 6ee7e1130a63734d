package bridge

import (
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Which driver an operation asks.
//
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

// driverOf returns the Flex driver that a record belongs to.
func (b *Bridge) driverOf(r *volstate.Record) (*FlexDriver, error) {
	d, ok := b.Drivers[r.FlexDriver]
	if !ok {
		return nil, flex.Errorf(flex.CodeFailedPrecondition, "volume %s belongs to the driver %s, which the configuration no longer has; put it back until its volumes are gone", r.Key(), r.FlexDriver)
	}
	return d, d.serves(r.Key())
}

// serves is an error for the volume of a CSI driver that the configuration had
// before. The one that it has now may know another volume by the same handle.
func (d *FlexDriver) serves(key csivol.Key) error {
	if d.CSIDriver == key.Driver {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s belongs to the CSI driver %s, and the configuration now has %s for %s; put it back until its volumes are gone", key, key.Driver, d.CSIDriver, d.Name)
}

// driverFor returns the driver of an operation: that of a callout or, for what is torn
// down, that of the record. What no record has needs none.
func (b *Bridge) driverFor(d *FlexDriver, r *volstate.Record, w lifecycle.Wanted) (*FlexDriver, error) {
	switch {
	case d == nil && w.Goal == lifecycle.CompleteUnmount && r.Targets[w.Dir] == nil:
		return nil, nil //nolint:nilnil // only the directory is unmounted
	case d == nil:
		return b.undoer(r)
	case w.Goal == lifecycle.Unmount || w.Goal == lifecycle.UnmountDevice || w.Goal == lifecycle.Detach:
		return b.undoerOf(d, r)
	}
	return d, nil
}
