package migrate

import (
	"context"
	"maps"
	"slices"
	"time"
)

const finishKind = "MigrationFinish"

// A FinishReport lists what blocks taking FlexVolume drivers away, and
// then the bridge.
type FinishReport struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Made       time.Time   `json:"made"`
	Server     string      `json:"server"`
	Drivers    []DriverEnd `json:"drivers"`
	Bridge     End         `json:"bridge"`
	// Notes block nothing, and are worth knowing before.
	Notes []Obstacle `json:"notes,omitempty"`
	// Problems are what could not be looked at; with any, nothing is free.
	Problems []string `json:"problems,omitempty"`
}

// An End is whether something can be taken away.
type End struct {
	// Free: nothing stands in the way.
	Free      bool       `json:"free"`
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// Steps take it away.
	Steps []string `json:"steps,omitempty"`
}

// A DriverEnd is about a FlexVolume driver. In the cluster it blocks nothing
// any more when nothing names it; on a node, when nothing of it is mounted there.
type DriverEnd struct {
	FlexDriver string `json:"flexDriver"`
	End
	Nodes []NodeEnd `json:"nodes,omitempty"`
}

// A NodeEnd is about a node.
type NodeEnd struct {
	Node string `json:"node"`
	End
}

// An Obstacle is what stands in the way, and what to do about it.
type Obstacle struct {
	What    string   `json:"what"`
	Objects []string `json:"objects,omitempty"`
	Do      string   `json:"do,omitempty"`
	// Passing: it should be gone in a moment, without anything being done.
	Passing bool `json:"passing,omitempty"`
}

// Finish looks at what needs FlexVolume drivers and the bridge; drivers narrow
// that, and none are all that something is known of.
func (o *Observer) Finish(ctx context.Context, drivers []string) (*FinishReport, error) {
	s, err := o.observe(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range sorted(s.lost) {
		s.problem("%v", l)
	}
	f := &finisher{observed: s, daemons: map[string]string{}, inline: map[string][]string{}, using: map[string]map[string][]string{}}
	f.look(ctx)
	f.lookObjects(ctx)
	if classes, err := s.w.flexClasses(ctx); err != nil {
		f.problem("which StorageClasses make FlexVolumes: %v", err)
	} else {
		f.classes = classes.All()
	}
	d := &FinishReport{APIVersion: apiVersion, Kind: finishKind, Made: s.now, Server: o.Server, Drivers: []DriverEnd{}}
	known := f.drivers()
	wanted := drivers
	if len(drivers) == 0 {
		wanted = known
	}
	all := map[string]DriverEnd{}
	for _, name := range slices.Concat(known, wanted) {
		if _, ok := all[name]; !ok {
			all[name] = f.driver(ctx, name)
		}
	}
	d.Bridge = f.bridge(ctx, all)
	for _, name := range wanted {
		driver := all[name]
		if d.Bridge.Free {
			driver.goesWithBridge()
		}
		d.Drivers = append(d.Drivers, driver)
	}
	d.Notes = f.notes(ctx, wanted)
	d.Problems = s.problems
	if len(d.Problems) > 0 {
		d.doubt()
	}
	return d, ctx.Err()
}

// goesWithBridge: the last drivers are not taken out of its configuration first,
// which has to have one.
func (d *DriverEnd) goesWithBridge() {
	if d.Steps = nil; len(d.Nodes) > 0 {
		d.Steps = []string{"nothing of its own: it goes with the bridge, below"}
	}
	for i := range d.Nodes {
		d.Nodes[i].Steps = nil
	}
}

// doubt takes back that anything can be taken away: something is not known.
func (d *FinishReport) doubt() {
	d.Bridge.doubt()
	for i := range d.Drivers {
		d.Drivers[i].doubt()
		for j := range d.Drivers[i].Nodes {
			d.Drivers[i].Nodes[j].doubt()
		}
	}
}

func (e *End) doubt() { e.Free, e.Steps = false, nil }

// Passing reports whether all that stands in the way of the drivers should be gone in a
// moment: the last pods have just ended, and their nodes have not told it yet.
func (d *FinishReport) Passing() bool {
	passing := false
	for _, driver := range d.Drivers {
		ends := []End{driver.End}
		for _, n := range driver.Nodes {
			ends = append(ends, n.End)
		}
		for _, e := range ends {
			if slices.ContainsFunc(e.Obstacles, func(o Obstacle) bool { return !o.Passing }) {
				return false
			}
			passing = passing || len(e.Obstacles) > 0
		}
	}
	return passing && len(d.Problems) == 0
}

// Free reports whether all that was asked about can be taken away: the drivers
// that were named, or all of them and the bridge.
func (d *FinishReport) Free(named bool) bool {
	for _, driver := range d.Drivers {
		if !driver.Free {
			return false
		}
	}
	return len(d.Problems) == 0 && (named || d.Bridge.Free)
}

// drivers are all that something is known of.
func (f *finisher) drivers() []string {
	all := map[string]bool{}
	add := func(name string) {
		if name != "" {
			all[name] = true
		}
	}
	for _, pv := range f.volumes {
		add(pv.flexDriver())
		if migrated(pv) {
			add(pv.Annotations[FlexDriverAnnotation])
		}
	}
	for _, r := range f.records {
		add(r.FlexDriver)
	}
	for _, d := range f.documents {
		for _, v := range d.Volumes {
			add(v.FlexDriver)
		}
		for _, name := range d.FlexDrivers {
			add(name)
		}
	}
	for name := range f.inline {
		add(name)
	}
	for _, c := range f.classes {
		add(c.FlexDriver)
	}
	return slices.Sorted(maps.Keys(all))
}
