package dryrun

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// Plans plans the life of each volume.
func Plans(c *bridgeconfig.Configuration, n Node, volumes []*Volume) ([]*Plan, error) {
	mappers, err := mapping.Compile(c)
	if err != nil {
		return nil, err
	}
	var plans []*Plan
	for _, v := range volumes {
		d, err := driverOfVolume(c, v)
		if err != nil {
			return nil, err
		}
		v.assume(flexKeys(&d.Secrets))
		p, err := plan(n, d, mappers[d.FlexDriver].WithFiles(assumedFile), v)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// Find returns the volumes in a text: manifests, or one callout on a line.
func Find(text []byte) ([]*Volume, error) {
	if driver, args, err := ParseLine(string(text)); err == nil && len(args) > 1 {
		v, err := FromCall(driver, args)
		if err != nil {
			return nil, err
		}
		return []*Volume{v}, nil
	}
	return fromManifests(text)
}

// driverOfVolume finds the driver of a volume; a call may not tell it.
func driverOfVolume(c *bridgeconfig.Configuration, v *Volume) (*bridgeconfig.Driver, error) {
	if v.FlexDriver == "" && len(c.Drivers) == 1 {
		return &c.Drivers[0], nil
	}
	var names []string
	for i := range c.Drivers {
		if c.Drivers[i].FlexDriver == v.FlexDriver {
			return &c.Drivers[i], nil
		}
		names = append(names, c.Drivers[i].FlexDriver)
	}
	if v.FlexDriver == "" {
		return nil, fmt.Errorf("%s: nothing tells its FlexVolume driver: give --driver", v.From)
	}
	return nil, fmt.Errorf("%s: the configuration has no driver %q (there are: %s)", v.From, v.FlexDriver, strings.Join(names, ", "))
}

// flexKeys are the keys of the Flex secret that the configuration asks for.
func flexKeys(s *bridgeconfig.Secrets) []string {
	keys := map[string]bool{}
	for _, source := range s.All() {
		for _, key := range source.FromFlexSecret {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}
