package migrate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/report"
)

// needed says that something is in the way.
const needed = "IS NEEDED STILL"

// mostNamed are how many objects of one kind are named, unless all are wanted.
const mostNamed = 5

// Show makes what stands in the way, driver by driver, and then of the bridge; wide names all
// objects, and nodes with which nothing is wrong.
func (finish *FinishReport) Show(view report.View) *report.Report {
	isWide := view == report.Wide
	var all []report.Note
	for _, driver := range finish.Drivers {
		all = append(all, driver.note(isWide))
	}
	if len(finish.Drivers) == 0 {
		all = report.Notes("Nothing is known of any FlexVolume driver.")
	}
	all = append(all, report.Note{Text: "The bridge: " + endOf(finish.Bridge, "can be taken away", needed), Notes: finish.Bridge.notes(isWide)})
	known := report.Section{Heading: "Worth knowing before:"}
	for _, n := range finish.Notes {
		known.Notes = append(known.Notes, n.note(isWide))
	}
	var problems []report.Note
	for _, p := range finish.Problems {
		problems = append(problems, report.Note{Text: "not known: " + p})
	}
	if len(problems) > 0 {
		problems = append(problems, report.Note{Text: "As long as something is not known, take nothing away."})
	}
	return &report.Report{Sections: []report.Section{{Notes: all}, known, {Notes: problems}}}
}

func (driverEnd *DriverEnd) note(isWide bool) report.Note {
	free := "can be taken away"
	if len(driverEnd.Nodes) == 0 {
		free = "is on no node, and nothing needs it"
	}
	n := report.Note{Text: fmt.Sprintf("FlexVolume driver %s: %s", driverEnd.FlexDriver, driverEnd.state(free)), Notes: driverEnd.notes(isWide)}
	clear := 0
	for _, node := range driverEnd.Nodes {
		if node.Free {
			clear++
		}
		notes := node.notes(isWide)
		if !node.Free || isWide {
			notes = []report.Note{{Text: fmt.Sprintf("node %s: %s", node.Node, endOf(node.End, "nothing of it is there", needed)), Notes: notes}}
		}
		n.Notes = append(n.Notes, notes...)
	}
	if clear > 0 {
		n.Notes = append(n.Notes, report.Note{Text: fmt.Sprintf("%d of %d nodes have nothing of it", clear, len(driverEnd.Nodes))})
	}
	return n
}

// state says whether the driver is needed: nodes may need it when nothing in the cluster does.
func (driverEnd *DriverEnd) state(free string) string {
	onNode := slices.ContainsFunc(driverEnd.Nodes, func(n NodeEnd) bool { return len(n.Obstacles) > 0 })
	if onNode && len(driverEnd.Obstacles) == 0 {
		return needed + " on nodes"
	}
	return endOf(driverEnd.End, free, needed)
}

func endOf(e End, free, not string) string {
	switch {
	case e.Free:
		return free
	case len(e.Obstacles) > 0:
		return not
	}
	return "not known"
}

func (e End) notes(isWide bool) (all []report.Note) {
	for _, o := range e.Obstacles {
		all = append(all, o.note(isWide))
	}
	for _, c := range e.Steps {
		all = append(all, report.Note{Text: "- " + c})
	}
	return all
}

func (o Obstacle) note(isWide bool) report.Note {
	shown, more := o.Objects, ""
	if !isWide && len(shown) > mostNamed {
		shown, more = shown[:mostNamed], fmt.Sprintf("; and %d more (-o wide)", len(shown)-mostNamed)
	}
	return report.Note{Text: fmt.Sprintf("%s (%d): %s%s", o.What, len(o.Objects), strings.Join(shown, "; "), more), Next: o.Do}
}
