package bridge

import (
	"context"
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Drivers are those of the configuration. Several may have one name: then the options of a
// volume say which CSI driver it belongs to.
type Drivers struct {
	All []*FlexDriver
	// Choose returns the index in All of the driver that a volume belongs to; nil: each
	// name is there once.
	Choose func(name string, o flex.Options) (int, error)
}

// Names returns the names of all drivers, sorted, each once.
func (d Drivers) Names() []string {
	var names []string
	for _, one := range d.All {
		names = append(names, one.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// First returns the first driver of a name; nil: there is none. All of a name agree on
// Inline and on the Attacher.
func (d Drivers) First(name string) *FlexDriver {
	for _, one := range d.All {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// Volume maps the options of a call of the driver name, and returns the driver that the
// volume belongs to. There is a driver of that name.
func (d Drivers) Volume(ctx context.Context, name string, o flex.Options) (*FlexDriver, *csivol.Volume, error) {
	chosen, err := d.choose(name, o)
	if err != nil {
		return nil, nil, err
	}
	v, err := chosen.Map(ctx, o)
	return chosen, v, err
}

func (d Drivers) choose(name string, o flex.Options) (*FlexDriver, error) {
	if d.Choose == nil {
		return d.First(name), nil
	}
	i, err := d.Choose(name, o)
	if err != nil {
		return nil, err
	}
	return d.All[i], nil
}

// of returns the driver of a name and a CSI driver. If the configuration has the name with
// other CSI drivers only, it returns the first of them; nil: it does not have the name.
func (d Drivers) of(name, csiDriver string) *FlexDriver {
	for _, one := range d.All {
		if one.Name == name && one.CSIDriver == csiDriver {
			return one
		}
	}
	return d.First(name)
}

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
	if b.Drivers.First(name) != nil {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "the configuration of flex2csi on this node has no driver %s; add it and restart the daemon", name)
}

// driverOf returns the Flex driver that a record belongs to.
func (b *Bridge) driverOf(r *volstate.Record) (*FlexDriver, error) {
	d := b.Drivers.of(r.FlexDriver, r.Driver)
	if d == nil {
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
