package journal

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// Both keeps records on the disk and in the cluster. The disk is written first:
// its record can be one ahead of the cluster's, and nothing has been done by that
// one. So where both were written at once, by two who did not know of each
// other, the cluster's holds.
type Both struct {
	Disk    *Disk
	Cluster *Cluster
}

// Load returns the later of the two records, or the one that there is; nil if
// there is none. One that is unreadable counts as none if there is the other.
func (b *Both) Load(ctx context.Context, volume string) (*Record, error) {
	inCluster, err := b.Cluster.Load(ctx, volume)
	if err != nil && !errors.Is(err, ErrUnreadable) {
		return nil, err // it may be the later one
	}
	onDisk, diskErr := b.Disk.Load(ctx, volume)
	if diskErr != nil && !errors.Is(diskErr, ErrUnreadable) {
		return nil, diskErr
	}
	if r := later(inCluster, onDisk); r != nil {
		return r, nil
	}
	return nil, errors.Join(err, diskErr)
}

func later(inCluster, onDisk *Record) *Record {
	switch {
	case inCluster == nil: // nobody misses what a person has cleared away
		return onDisk
	case onDisk != nil && onDisk.after(inCluster):
		onDisk.Lagging = true
		return onDisk
	}
	return inCluster
}

// List returns the records of all volumes, as Load does, and an error for each
// that cannot be read.
func (b *Both) List(ctx context.Context) ([]*Record, error) {
	inCluster, brokenMaps, err := b.Cluster.list(ctx)
	if err != nil {
		return nil, err
	}
	onDisk, brokenFiles, err := b.Disk.list()
	if err != nil {
		return nil, err
	}
	all := map[string]*Record{}
	for _, r := range inCluster {
		all[r.Volume] = r
	}
	for _, r := range onDisk {
		all[r.Volume] = later(all[r.Volume], r)
	}
	records := slices.Collect(maps.Values(all))
	for _, r := range records {
		forget(brokenMaps, ConfigMapName(r.Volume))
		if name, err := fileName(r.Volume); err == nil {
			forget(brokenFiles, name)
		}
	}
	sortRecords(records)
	broken := slices.Concat(slices.Collect(maps.Values(brokenMaps)), slices.Collect(maps.Values(brokenFiles)))
	return records, errors.Join(broken...)
}

// forget forgets that a copy is unreadable, as the other one is not.
func forget(broken map[string]error, name string) {
	if errors.Is(broken[name], ErrUnreadable) {
		delete(broken, name)
	}
}

// Save writes both.
func (b *Both) Save(ctx context.Context, r *Record) error {
	n := r.next(time.Now())
	if err := b.Disk.put(ctx, n); err != nil {
		return err
	}
	if err := b.Cluster.put(ctx, n); err != nil {
		return err
	}
	r.saved(n)
	return nil
}

// Verify reads both.
func (b *Both) Verify(ctx context.Context, r *Record) error {
	return errors.Join(b.Disk.Verify(ctx, r), b.Cluster.Verify(ctx, r))
}

// BackUp writes to the disk.
func (b *Both) BackUp(ctx context.Context, volume string, objects [][]byte) error {
	return b.Disk.BackUp(ctx, volume, objects)
}
