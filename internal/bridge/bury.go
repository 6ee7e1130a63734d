package bridge

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// buryCommand names the operation that works off a tombstone; no callout does.
const buryCommand flex.Command = "bury"

// Bury does what a tombstone says: a directory was unmounted while this
// process was not there to hear of it. One that has been worked off meanwhile,
// or that a new mount has overtaken, is nothing to do.
func (b *Bridge) Bury(ctx context.Context, dir string) error {
	key, ok := b.find(dir)
	if !ok {
		if buried, err := b.tombstone(dir); err != nil || !buried {
			return err
		}
		return b.tidy(ctx, dir)
	}
	if b.busy(key) {
		return nil // later, or by what is under way: no queue behind a driver that hangs
	}
	return b.do(ctx, key, operation{command: buryCommand, dir: dir}, func(v *volume) error {
		if buried, err := b.tombstone(dir); err != nil || !buried {
			return err
		}
		f := b.fate(v, dir)
		if err := b.mayLetGo(v, dir, f); err != nil {
			return err
		}
		v.next = f.Next != ""
		return b.buryHere(v, dir)
	})
}

// buryHere works off a tombstone while it is the volume's turn.
func (b *Bridge) buryHere(v *volume, dir string) error {
	d, err := b.undoer(v.record)
	if err != nil && v.record.Targets[dir] != nil {
		return err
	}
	return b.release(d, v, csivol.Secrets{}, dir)
}

// tombstone reports whether dir has one.
func (b *Bridge) tombstone(dir string) (bool, error) {
	if b.Tombstones == nil {
		return false, nil
	}
	return b.Tombstones.Has(dir)
}

// forgetTombstone is part of a complete unmount: a tombstone that outlived it
// would take the next mount at dir away.
func (b *Bridge) forgetTombstone(dir string) error {
	if b.Tombstones == nil {
		return nil
	}
	return b.Tombstones.Remove(dir)
}
