package migrate

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// needed says that something is in the way.
const needed = "IS NEEDED STILL"

// mostNamed are how many objects of one kind are named, unless all are wanted.
const mostNamed = 5

// Table prints for people what stands in the way, driver by driver, and then of
// the bridge; wide names all objects, and nodes with which nothing is wrong.
func (report *FinishReport) Table(out io.Writer, wide bool) error {
	var b strings.Builder
	for _, driver := range report.Drivers {
		free := "can be taken away"
		if len(driver.Nodes) == 0 {
			free = "is on no node, and nothing needs it"
		}
		fmt.Fprintf(&b, "FlexVolume driver %s: %s\n", driver.FlexDriver, driver.state(free))
		driver.print(&b, "  ", wide)
		clear := 0
		for _, n := range driver.Nodes {
			if n.Free {
				clear++
			}
			if !n.Free || wide {
				fmt.Fprintf(&b, "  node %s: %s\n", n.Node, endOf(n.End, "nothing of it is there", needed))
			}
			n.print(&b, "    ", wide)
		}
		if clear > 0 {
			fmt.Fprintf(&b, "  %d of %d nodes have nothing of it\n", clear, len(driver.Nodes))
		}
		b.WriteByte('\n')
	}
	if len(report.Drivers) == 0 {
		b.WriteString("Nothing is known of any FlexVolume driver.\n\n")
	}
	fmt.Fprintf(&b, "The bridge: %s\n", endOf(report.Bridge, "can be taken away", needed))
	report.Bridge.print(&b, "  ", wide)
	if len(report.Notes) > 0 {
		b.WriteString("\nWorth knowing before:\n")
		for _, n := range report.Notes {
			n.print(&b, "  ", wide)
		}
	}
	for _, p := range report.Problems {
		fmt.Fprintf(&b, "\nnot known: %s\n", p)
	}
	if len(report.Problems) > 0 {
		b.WriteString("\nAs long as something is not known, take nothing away.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
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

func (e End) print(b *strings.Builder, indent string, wide bool) {
	for _, o := range e.Obstacles {
		o.print(b, indent, wide)
	}
	for _, c := range e.Steps {
		fmt.Fprintf(b, "%s- %s\n", indent, c)
	}
}

func (o Obstacle) print(b *strings.Builder, indent string, wide bool) {
	shown, more := o.Objects, 0
	if !wide && len(shown) > mostNamed {
		shown, more = shown[:mostNamed], len(shown)-mostNamed
	}
	fmt.Fprintf(b, "%s%s (%d): %s", indent, o.What, len(o.Objects), strings.Join(shown, "; "))
	if more > 0 {
		fmt.Fprintf(b, "; and %d more (-o wide)", more)
	}
	fmt.Fprintf(b, "\n%s  → %s\n", indent, o.Do)
}
