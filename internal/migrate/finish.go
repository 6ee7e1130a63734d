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
func (observer *Observer) Finish(ctx context.Context, drivers []string) (*FinishReport, error) {
	s, err := observer.observe(ctx)
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
	d := &FinishReport{APIVersion: apiVersion, Kind: finishKind, Made: s.now, Server: observer.Server, Drivers: []DriverEnd{}}
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
func (driverEnd *DriverEnd) goesWithBridge() {
	if driverEnd.Steps = nil; len(driverEnd.Nodes) > 0 {
		driverEnd.Steps = []string{"nothing of its own: it goes with the bridge, below"}
	}
	for i := range driverEnd.Nodes {
		driverEnd.Nodes[i].Steps = nil
	}
}

// doubt takes back that anything can be taken away: something is not known.
func (finish *FinishReport) doubt() {
	finish.Bridge.doubt()
	for i := range finish.Drivers {
		finish.Drivers[i].doubt()
		for j := range finish.Drivers[i].Nodes {
			finish.Drivers[i].Nodes[j].doubt()
		}
	}
}

func (e *End) doubt() { e.Free, e.Steps = false, nil }

// Passing reports whether all that stands in the way of the drivers should be gone in a
// moment: the last pods have just ended, and their nodes have not told it yet.
func (finish *FinishReport) Passing() bool {
	passing := false
	for _, driver := range finish.Drivers {
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
	return passing && len(finish.Problems) == 0
}

// Free reports whether all that was asked about can be taken away: the drivers
// that were named, or all of them and the bridge.
func (finish *FinishReport) Free(named bool) bool {
	for _, driver := range finish.Drivers {
		if !driver.Free {
			return false
		}
	}
	return len(finish.Problems) == 0 && (named || finish.Bridge.Free)
}

// drivers are all that something is known of.
func (found *finisher) drivers() []string {
	all := map[string]bool{}
	add := func(name string) {
		if name != "" {
			all[name] = true
		}
	}
	for _, pv := range found.volumes {
		add(pv.flexDriver())
		if migrated(pv) {
			add(pv.Annotations[FlexDriverAnnotation])
		}
	}
	for _, r := range found.records {
		add(r.FlexDriver)
	}
	for _, d := range found.documents {
		for _, v := range d.Volumes {
			add(v.FlexDriver)
		}
		for _, name := range d.FlexDrivers {
			add(name)
		}
	}
	for name := range found.inline {
		add(name)
	}
	for _, c := range found.classes {
		add(c.FlexDriver)
	}
	return slices.Sorted(maps.Keys(all))
}
