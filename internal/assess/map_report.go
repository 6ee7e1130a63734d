package assess

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A MapResult has the results of many volumes.
type MapResult struct {
	Plans []*Plan // without their steps
	// WithoutCSIDriver are CSI drivers for which there is no CSIDriver object that would
	// decide what is asked of them.
	WithoutCSIDriver []string
}

// Report plans all volumes and compares them.
func (p *Planner) Report(volumes []*FlexVolume) *MapResult {
	r := &MapResult{}
	without := map[string]bool{}
	for _, v := range volumes {
		plan := p.Plan(v)
		plan.Attached = plan.attached()
		plan.Steps, plan.Notes = nil, nil
		if plan.asksCSIDriver {
			without[plan.CSIDriver] = true
		}
		r.Plans = append(r.Plans, plan)
	}
	for _, plan := range r.Plans {
		plan.idle = slices.DeleteFunc(plan.idle, func(name string) bool { return p.effects.read[plan.FlexDriver+" "+name] })
	}
	r.WithoutCSIDriver = slices.Sorted(maps.Keys(without))
	r.findSameHandles()
	return r
}

// Detail is the whole plan of a volume in the report.
func (p *Planner) Detail(of *Plan) *Plan {
	plan := p.Plan(of.volume)
	plan.Result, plan.Reason = of.Result, of.Reason
	return plan
}

// findSameHandles finds PersistentVolumes that are one volume of a CSI driver. Inline
// volumes are left out: the pods of a Deployment have the same one.
func (r *MapResult) findSameHandles() {
	type id struct{ driver, handle string }
	same := map[id][]*Plan{}
	for _, plan := range r.Plans {
		if plan.Handle != "" && !plan.volume.inline {
			key := id{plan.CSIDriver, plan.Handle}
			same[key] = append(same[key], plan)
		}
	}
	for _, plans := range same {
		for i, plan := range plans {
			if len(plans) == 1 || plan.Result != OK {
				continue
			}
			others := slices.Concat(plans[:i], plans[i+1:])
			plan.Result = SameHandle
			plan.Reason = fmt.Sprintf("%s has the handle %s as well: no two PersistentVolumes may be one volume of the CSI driver; make volume.handle tell them apart, or delete one", some(others), plan.Redact(plan.Handle))
		}
	}
}

func some(plans []*Plan) string {
	const most = 3
	var names []string
	for _, plan := range plans[:min(most, len(plans))] {
		names = append(names, plan.Volume)
	}
	if len(plans) > most {
		names = append(names, fmt.Sprintf("%d more", len(plans)-most))
	}
	return strings.Join(names, ", ")
}

// Select returns a report of the volumes with these names: of PersistentVolumes, claims
// (namespace/name) or inline volumes.
func (r *MapResult) Select(names []string) (*MapResult, error) {
	chosen := &MapResult{}
	found := map[string]bool{}
	for _, plan := range r.Plans {
		of := slices.DeleteFunc([]string{plan.Volume, plan.Claim, plan.DisplayName()}, func(name string) bool { return !slices.Contains(names, name) })
		if len(of) == 0 {
			continue
		}
		for _, name := range of {
			found[name] = true
		}
		chosen.Plans = append(chosen.Plans, plan)
		if plan.asksCSIDriver && !slices.Contains(chosen.WithoutCSIDriver, plan.CSIDriver) {
			chosen.WithoutCSIDriver = append(chosen.WithoutCSIDriver, plan.CSIDriver)
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("no FlexVolume is called %q: give the name of a PersistentVolume, or namespace/name of a claim; -o name lists them", name)
		}
	}
	return chosen, nil
}

// Bad returns the volumes that do not work.
func (r *MapResult) Bad() (bad []*Plan) {
	for _, plan := range r.Plans {
		if plan.Result != OK {
			bad = append(bad, plan)
		}
	}
	return bad
}

// A Summary counts volumes.
type Summary struct {
	Volumes    int              `json:"volumes"`
	Results    map[Result]int   `json:"results"`
	Drivers    []DriverCount    `json:"drivers"`
	Namespaces []NamespaceCount `json:"namespaces"`
}

// A DriverCount counts the volumes of a FlexVolume driver.
type DriverCount struct {
	FlexDriver string `json:"flexDriver"`
	CSIDriver  string `json:"csiDriver,omitempty"`
	Volumes    int    `json:"volumes"`
	OK         int    `json:"ok"`
	// Idle counts volumes by their options without an effect on any request, and Empty by
	// keys of the volume context without a value.
	Idle  map[string]int `json:"optionsWithoutEffect,omitempty"`
	Empty map[string]int `json:"emptyContextValues,omitempty"`
}

// A NamespaceCount counts the volumes of a namespace; "" has those without a claim.
type NamespaceCount struct {
	Namespace string `json:"namespace"`
	Volumes   int    `json:"volumes"`
	OK        int    `json:"ok"`
}

func count(all *map[string]int, names []string) {
	for _, name := range names {
		if *all == nil {
			*all = map[string]int{}
		}
		(*all)[name]++
	}
}

// Summary counts the volumes by result, driver and namespace.
func (r *MapResult) Summary() *Summary {
	s := &Summary{Volumes: len(r.Plans), Results: map[Result]int{}}
	drivers, namespaces := map[string]*DriverCount{}, map[string]*NamespaceCount{}
	for _, plan := range r.Plans {
		s.Results[plan.Result]++
		namespace, _, _ := strings.Cut(cmp.Or(plan.Claim, plan.Pod, plan.volume.template), "/")
		name := plan.FlexDriver + " " + plan.CSIDriver
		d := drivers[name]
		if d == nil {
			d = &DriverCount{FlexDriver: plan.FlexDriver, CSIDriver: plan.CSIDriver}
			drivers[name] = d
		}
		n := namespaces[namespace]
		if n == nil {
			n = &NamespaceCount{Namespace: namespace}
			namespaces[namespace] = n
		}
		count(&d.Idle, plan.idle)
		count(&d.Empty, plan.empty)
		d.Volumes++
		n.Volumes++
		if plan.Result == OK {
			d.OK++
			n.OK++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(drivers)) {
		s.Drivers = append(s.Drivers, *drivers[key])
	}
	for _, key := range slices.Sorted(maps.Keys(namespaces)) {
		s.Namespaces = append(s.Namespaces, *namespaces[key])
	}
	return s
}
