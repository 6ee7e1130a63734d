package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// waveOptions are the flags that say when volumes are started.
type waveOptions struct {
	width, perNode, failures int
	pause                    time.Duration
	until                    string
}

func (o *waveOptions) add(c *cobra.Command) {
	set := c.Flags()
	set.IntVar(&o.width, "width", 1, "how many volumes may be under way at the same time")
	set.IntVar(&o.perNode, "max-per-node", 0, "how many volumes with pods on the same node may be under way at the same time; 0 is any number")
	set.DurationVar(&o.pause, "pause", 0, "start --width volumes, wait until all of them have ended, and then for this time; and so on")
	set.StringVar(&o.until, "until", "", "start no volume after this `time`: HH:MM, local time and at most 12 hours from now, or as 2026-11-25T05:00:00Z")
	set.IntVar(&o.failures, "max-failures", 1, "start no volume after this many unexpected errors")
}

func (o *waveOptions) check() error {
	_, err := windowEnd(o.until, time.Now())
	switch {
	case o.width < 1 || o.width > 100:
		return usagef("--width %d: want 1 to 100", o.width)
	case o.perNode < 0:
		return usagef("--max-per-node %d: want 0 for any number, or more", o.perNode)
	case o.pause < 0 || o.pause > 24*time.Hour:
		return usagef("--pause %v: want 0s to 24h", o.pause)
	case o.failures < 1:
		return usagef("--max-failures %d: want 1 or more", o.failures)
	}
	return err
}

// limit puts them into the options of a run.
func (o *waveOptions) limit(options *migrate.Options, now time.Time) (err error) {
	options.Width, options.PerNode, options.Pause, options.MaxFailures = o.width, o.perNode, o.pause, o.failures
	options.Until, err = windowEnd(o.until, now)
	return err
}

// windowEnd reads --until. HH:MM is the nearest one, in the past or in the future: a Job that
// is started again after its window must not take it for tomorrow's.
func windowEnd(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	clock, err := time.Parse("15:04", text)
	if err != nil {
		return time.Time{}, usagef("--until %s: want a time such as 05:00 or 2026-11-25T05:00:00Z", text)
	}
	const most = 12 * time.Hour
	at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	switch {
	case at.Sub(now) > most:
		at = at.AddDate(0, 0, -1)
	case now.Sub(at) >= most:
		at = at.AddDate(0, 0, 1)
	}
	return at, nil
}
