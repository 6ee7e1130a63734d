package main

import (
	"errors"
	"strings"

	"github.com/spf13/pflag"
)

// finishOptions are the flags of migrate finish.
type finishOptions struct {
	lookOptions
	drivers []string
}

func (o *finishOptions) flags(env environment) *pflag.FlagSet {
	set := flags("migrate finish", `Tell whether FlexVolume drivers, and then the bridge, can be taken away from each
node and from the cluster, and if not, what stands in the way and what to do about
it: volumes that are FlexVolumes still, pods and their templates that name a driver
without a volume, pods that still have a mount of the bridge, migrations that are
not finished. It reads only, and takes nothing away.

The exit status is 0 only if all that was asked about can be taken away.

  flex2csi migrate finish
  flex2csi migrate finish --driver example.com/disk`, env)
	set.SetInterspersed(true)
	set.StringArrayVar(&o.drivers, "driver", nil, "only this FlexVolume driver, `vendor/name`. May be given more than once")
	o.add(set)
	return set
}

// errNeeded is for scripts.
var errNeeded = errors.New("not everything can be taken away yet, as shown")

// migrateFinish is flex2csi migrate finish.
func migrateFinish(args []string, env environment) error {
	var o finishOptions
	if err := parse(o.flags(env), args); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	for _, driver := range o.drivers {
		if vendor, name, ok := strings.Cut(driver, "/"); !ok || vendor == "" || name == "" || strings.Contains(name, "/") {
			return usagef("--driver %s: want vendor/name", driver)
		}
	}
	ctx, stop := untilInterrupted()
	defer stop()
	observer, err := o.observer(ctx, env)
	if err != nil {
		return err
	}
	departure, err := observer.Finish(ctx, o.drivers)
	if err != nil {
		return err
	}
	if err := o.print(departure, env); err != nil {
		return err
	}
	if !departure.Free(len(o.drivers) > 0) {
		return errNeeded
	}
	return nil
}
