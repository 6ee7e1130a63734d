package assess

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A Planner plans the lives of volumes with a configuration.
type Planner struct {
	config     *bridgeconfig.Configuration
	mappers    mapping.Mappers
	node       Node
	csiDrivers map[string]csivol.DriverInfo
	effects    effects
}

// NewPlanner returns a planner. csiDrivers are the CSIDriver objects of the cluster.
func NewPlanner(c *bridgeconfig.Configuration, n Node, csiDrivers map[string]csivol.DriverInfo) (*Planner, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	mappers, err := mapping.Compile(c)
	return &Planner{c, mappers, n, csiDrivers, effects{mappers, map[string]bool{}, map[string]int{}}}, err
}

// Plan plans the life of a volume, or says why it has none.
func (p *Planner) Plan(of *FlexVolume) *Plan {
	copied := *of // it is completed here
	v := &copied
	v.Notes = slices.Clip(v.Notes)
	plan := &Plan{
		FlexDriver: v.FlexDriver, Volume: v.Options.VolumeName, Claim: v.Claim, Pod: v.Pod, Result: OK,
		Notes: v.Notes, Redact: flex.NewRedactor(v.Options).Redact, volume: of,
	}
	i, err := p.driver(v)
	if err != nil {
		plan.Result = NoDriver
	} else {
		d := &p.config.Drivers[i]
		plan.FlexDriver, plan.CSIDriver = d.FlexDriver, d.CSIDriver
		v.assume(flexKeys(&d.Secrets))
		plan.Redact = flex.NewRedactor(v.Options).Redact
		err = plan.plan(v, p.node, d, p.mappers[i].WithFiles(assumedFile), p.csiDrivers)
	}
	if err == nil && v.Err == nil {
		plan.idle = p.effects.idle(plan.FlexDriver, v)
		for _, name := range plan.idle {
			plan.Notes = append(plan.Notes, "option "+name+" has no effect: the mapping does not read it")
		}
		for _, key := range plan.empty {
			plan.Notes = append(plan.Notes, "the volume context has no value for "+key+": the CSI driver may take that for something else than a missing key")
		}
	}
	switch {
	case v.Err != nil:
		plan.Result, err = NotMapped, v.Err
	case v.refused != "":
		plan.Result, err = Refused, errors.New(v.refused)
	}
	if err != nil {
		plan.Steps, plan.Reason = nil, plan.Redact(err.Error())
		if plan.Result == OK {
			plan.Result = NotMapped
		}
	}
	return plan
}

// driver returns the index of the driver of a volume. A call may not tell its name.
func (p *Planner) driver(v *FlexVolume) (int, error) {
	var names []string
	for i := range p.config.Drivers {
		if name := p.config.Drivers[i].FlexDriver; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	name := v.FlexDriver
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	switch {
	case name == "":
		return 0, errors.New("nothing tells its FlexVolume driver: give --driver")
	case !slices.Contains(names, name):
		return 0, fmt.Errorf("the configuration has no driver %q, only %s: add it; flex2csi preset list shows mappings", name, strings.Join(names, ", "))
	}
	return p.mappers.Choose(name, v.Options)
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
