package dryrun

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
)

// Plans plans the life of each volume in input: manifests, or one callout on a
// line. driver is that of a callout which does not tell its own.
func Plans(c *bridgeconfig.Configuration, n Node, driver string, input []byte) ([]*Plan, error) {
	mappers, err := mapping.Compile(c)
	if err != nil {
		return nil, err
	}
	volumes, attaches, err := find(driver, input)
	if err != nil {
		return nil, err
	}
	n.ControlPlaneAttaches = n.ControlPlaneAttaches || attaches
	var plans []*Plan
	for _, v := range volumes {
		if v.FlexDriver == "" && len(c.Drivers) == 1 {
			v.FlexDriver = c.Drivers[0].FlexDriver
		}
		d, err := driverNamed(c, v)
		if err != nil {
			return nil, err
		}
		v.Assume(flexKeys(&d.Secrets))
		p, err := Make(n, d, mappers[d.FlexDriver], v)
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

func find(driver string, input []byte) (volumes []*Volume, attaches bool, err error) {
	text := string(input)
	if !LooksLikeCall(text) {
		volumes, err = FromManifests(input)
		return volumes, false, err
	}
	fromLine, args, err := ParseLine(text)
	if err != nil {
		return nil, false, err
	}
	v, attaches, err := FromCall(orDefault(driver, fromLine), args)
	return []*Volume{v}, attaches, err
}

func driverNamed(c *bridgeconfig.Configuration, v *Volume) (*bridgeconfig.Driver, error) {
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
