package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// finishOptions are the flags of migrate finish.
type finishOptions struct {
	lookOptions
	drivers []string
}

func newMigrateFinish() *cobra.Command {
	o := finishOptions{lookOptions: newLookOptions()}
	c := &cobra.Command{
		Use:   "finish",
		Short: "Report whether FlexVolume drivers and the bridge can be removed",
		Long: `Report whether FlexVolume drivers, and then the bridge, can be removed from each
node and from the cluster, and if not, what prevents it and what to do about it:
volumes that are still FlexVolumes, objects of any kind with a flexVolume, StorageClasses
that make FlexVolumes, pods that still have a mount of the bridge, migrations that are
not finished. What cannot be read is not known, and nothing can be removed then. It reads only, and removes nothing. If the last pods have just ended, it
waits up to a minute for their nodes to tell so.

The exit status is 0 only if all that was asked about can be removed.`,
		Example: `  flex2csi migrate finish
  flex2csi migrate finish --driver example.com/disk`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return o.finish(c) },
	}
	c.Flags().StringArrayVar(&o.drivers, "driver", nil, "only this FlexVolume driver, `vendor/name`; may be repeated")
	o.add(c)
	completes(c, "driver", o.api.names(flexDrivers()))
	return c
}

const (
	// finishPatience is how long finish waits for what should be gone in a moment. A daemon
	// tells of its volumes every 5 s at most, when they are unmounted.
	finishPatience = time.Minute
	finishAgain    = 3 * time.Second
)

// errNeeded gives scripts an exit status.
var errNeeded = errors.New("not everything can be taken away yet, as shown")

func (o *finishOptions) finish(c *cobra.Command) error {
	for _, driver := range o.drivers {
		if _, err := driverconfig.ParseDriverName(driver); err != nil {
			return usagef("--driver: %v", err)
		}
	}
	ctx, stop := untilInterrupted(c)
	defer stop()
	env := streams(c)
	observer, err := o.observer(ctx, env)
	if err != nil {
		return err
	}
	result, err := observer.Finish(ctx, o.drivers)
	if err == nil && result.Passing() {
		fmt.Fprintln(env.err, "waiting for the nodes to tell that the last pods have ended")
	}
	for deadline := time.Now().Add(finishPatience); err == nil && result.Passing() && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(finishAgain):
		}
		result, err = observer.Finish(ctx, o.drivers)
	}
	if err != nil {
		return err
	}
	if err := o.format.print(env.out, result, result.Show); err != nil {
		return err
	}
	if !result.Free(len(o.drivers) > 0) {
		return errNeeded
	}
	return nil
}
