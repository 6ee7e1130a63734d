package bridge

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	statsCommand flex.Command = "stats"
	// statsEvery is the kubelet's pace (VolumeStatsAggPeriod).
	statsEvery = time.Minute
	// statsTimeout is short: callouts for the volume wait meanwhile.
	statsTimeout = 10 * time.Second
)

// measure asks how full a volume is. FlexVolume has no callout for that, so the
// kubelet cannot; it asks the filesystem, which does not know what a driver
// knows, such as quotas.
func (b *Bridge) measure(r *volstate.Record) {
	d, err := b.driverOf(r)
	if !b.Measure || err != nil || !b.registry.due(r.Key(), string(statsCommand), statsEvery) {
		return
	}
	for _, dir := range slices.Sorted(maps.Keys(r.Targets)) {
		if t := r.Targets[dir]; t.Bound && t.Dead == "" {
			b.doLater(r, operation{command: statsCommand, dir: dir}, "ask how full it is", func(v *volume) error { return b.askStats(d, v, dir) })
			return
		}
	}
}

func (b *Bridge) askStats(d *FlexDriver, v *volume, dir string) error {
	t := v.record.Targets[dir]
	if t == nil || !t.Bound {
		return nil
	}
	f, err := v.features(d)
	if err != nil || !f.Stats {
		return err
	}
	return v.withDeadline(statsTimeout, func(ctx context.Context) error {
		stats, err := d.Service.NodeStats(ctx, v.key.Handle, target(t, dir), v.record.StagingPath)
		if err == nil {
			v.stats.Store(&stats)
		}
		return err
	})
}
