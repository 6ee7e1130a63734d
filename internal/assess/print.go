package assess

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/flex2csi/flex2csi/internal/htmlreport"
	"github.com/flex2csi/flex2csi/internal/release"
)

// columns are those of wide, CSV and HTML.
func columns() []string {
	return []string{"Kind", "Namespace", "Name", "FlexVolume driver", "Claim", "StorageClass", "Pods", "Nodes", "Preset", "CSI driver", "Result"}
}

func (i *item) row() []string {
	return []string{string(i.Kind), i.Namespace, i.Name, i.FlexDriver, i.Claim, i.StorageClass, strconv.Itoa(i.Pods), strings.Join(i.Nodes, " "), i.Preset, i.CSIDriver, string(i.Result)}
}

// CSV writes a line for each item.
func (r *Report) CSV(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{columns()}
	for _, i := range r.Items {
		row := i.row()
		for n, cell := range row {
			row[n] = noFormula(cell)
		}
		rows = append(rows, row)
	}
	return w.WriteAll(rows)
}

// noFormula keeps a spreadsheet from executing a text: a driver's name may be any.
func noFormula(cell string) string {
	if strings.IndexAny(cell, "=+-@\t\r") == 0 {
		return "'" + cell
	}
	return cell
}

// Table prints a summary; wide all items as well.
func (r *Report) Table(out io.Writer, wide bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s. %s.\n", r.Source, r.found(), r.kubernetes())
	if len(r.Drivers) > 0 {
		fmt.Fprintln(&b)
		r.drivers(&b)
	}
	if wide && len(r.Items) > 0 {
		fmt.Fprintln(&b)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, strings.ToUpper(strings.Join(append(columns(), "Path"), "\t")))
		for _, i := range r.Items {
			row := append(i.row(), i.Path)
			for n, cell := range row {
				row[n] = dash(printable(cell))
			}
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
		t.Flush()
	}
	if r.configured {
		refused := r.refused()
		fmt.Fprintf(&b, "\n%s\n", r.refusal(len(refused)))
		for _, name := range refused {
			fmt.Fprintf(&b, "  %s\n", printable(name))
		}
	}
	if len(r.Obstacles) > 0 {
		fmt.Fprintln(&b, "\nIn the way:")
		for _, o := range r.Obstacles {
			fmt.Fprintf(&b, "  %s\n    → %s\n", o, o.Do)
		}
	}
	if r.Estimate != nil {
		fmt.Fprintf(&b, "\n%s\n", r.Estimate)
	}
	if len(r.Next) > 0 {
		fmt.Fprintln(&b, "\nNext:")
		for n, s := range r.Next {
			fmt.Fprintf(&b, "  %d. %s\n", n+1, printable(s.Do))
			if s.Command != "" {
				fmt.Fprintf(&b, "       %s\n", s.Command)
			}
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// refused are the pods and templates that the policy flex2csi-pods denies.
func (r *Report) refused() (names []string) {
	for _, i := range r.Items {
		if i.RefusedByPolicy {
			names = append(names, strings.TrimPrefix(i.Namespace+"/"+i.Name, "/")+" ("+i.FlexDriver+")")
		}
	}
	return names
}

// refusal introduces that many pods and templates.
func (r *Report) refusal(n int) string {
	switch {
	case n > 0:
		return fmt.Sprintf("Installed with this configuration, flex2csi refuses new pods from these %d pods and templates, for an inline volume (docs/install.md#pods-with-inline-volumes):", n)
	case len(r.Incomplete) > 0:
		return "Installed with this configuration, flex2csi refuses no pod for an inline volume, but not all was read."
	}
	return "Installed with this configuration, flex2csi refuses no pod for an inline volume."
}

func (r *Report) drivers(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FLEXVOLUME DRIVER\tPVS\tINLINE\tIN TEMPLATES\tEPHEMERAL\tCLASSES\tPENDING\tCLAIM TEMPLATES\tPRESET\tCSI DRIVER")
	for _, d := range r.Drivers {
		fmt.Fprintf(t, "%s", printable(d.FlexDriver))
		for _, k := range kinds() {
			fmt.Fprintf(t, "\t%d", d.Counts[k])
		}
		var names, drivers []string
		for _, f := range d.Presets {
			names, drivers = append(names, f.Preset), append(drivers, f.CSIDriver+f.state())
		}
		fmt.Fprintf(t, "\t%s\t%s\n", dash(strings.Join(names, ", ")), dash(strings.Join(drivers, ", ")))
	}
	t.Flush()
}

func (f *fit) state() string {
	switch {
	case f.Installed == nil:
		return " (not known)"
	case *f.Installed:
		return " (installed)"
	}
	return " (missing)"
}

func (r *Report) found() string {
	text := fmt.Sprintf("%d objects have or make FlexVolumes, of %d drivers", r.FlexVolumes, len(r.Drivers))
	if r.Migrated > 0 {
		text += fmt.Sprintf(", %d migrated", r.Migrated)
	}
	return text
}

// kubernetes is about the releases.
func (r *Report) kubernetes() string {
	var all []string
	for _, one := range r.Releases {
		text := fmt.Sprintf("%s on %d nodes", one.Release, one.Nodes)
		if one.Server {
			text += " and the API server"
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "The Kubernetes release is not known"
	}
	return "Kubernetes " + strings.Join(all, ", ")
}

func (o obstacle) String() string {
	if o.FlexDriver == "" {
		return printable(o.What)
	}
	return printable(o.FlexDriver + ": " + o.What)
}

func (e timeEstimate) String() string {
	between := (time.Duration(e.MinSeconds) * time.Second).String()
	if e.MaxSeconds > e.MinSeconds {
		between += " to " + (time.Duration(e.MaxSeconds) * time.Second).String()
	}
	text := fmt.Sprintf("Migrating the %d PersistentVolumes that are ready, %d of them in use, one by one, takes %s by the figures of docs/migrate-guide.md#figures.", e.Volumes, e.WithPods, between)
	if e.WithPods > 0 && !e.Live {
		text += fmt.Sprintf(" Before Kubernetes %s no migration is live: the time in which each pod stops and starts again comes on top.", release.Reconstruction().Since)
	}
	return text
}

// HTML writes the report as a page.
func (r *Report) HTML(out io.Writer) error {
	page := &htmlreport.Report{
		Title: "FlexVolume assessment", Subtitle: fmt.Sprintf("%s, %s", r.Source, r.Made.Format("2006-01-02 15:04 MST")),
		Facts: []htmlreport.Fact{
			{Name: "Have or make FlexVolumes", Value: strconv.Itoa(r.FlexVolumes)}, {Name: "FlexVolume drivers", Value: strconv.Itoa(len(r.Drivers))}, {Name: "Migrated", Value: strconv.Itoa(r.Migrated)},
		},
		Notes: r.notes(), Table: htmlreport.Table{Columns: columns()},
	}
	var results, drivers, namespaces, nodes, kinds []string
	for _, i := range r.Items {
		page.Table.Rows = append(page.Table.Rows, i.row())
		results, drivers, namespaces = append(results, string(i.Result)), append(drivers, i.FlexDriver), append(namespaces, i.Namespace)
		nodes, kinds = append(nodes, i.Nodes...), append(kinds, string(i.Kind))
	}
	page.Charts = []htmlreport.Chart{
		htmlreport.Count("By result", results), htmlreport.Count("By kind", kinds), htmlreport.Count("By driver", drivers),
		htmlreport.Count("By namespace", namespaces), htmlreport.Count("By node", nodes),
	}
	return htmlreport.Write(out, page)
}

func (r *Report) notes() (all []htmlreport.Note) {
	for _, s := range r.Next {
		all = append(all, htmlreport.Note{Text: s.Do, Command: s.Command})
	}
	group(all, "Next")
	n := len(all)
	if r.configured {
		refused := r.refused()
		all = append(all, htmlreport.Note{Text: r.refusal(len(refused)) + " " + strings.Join(refused, ", ")})
	}
	group(all[n:], "Refused")
	n = len(all)
	for _, o := range r.Obstacles {
		all = append(all, htmlreport.Note{Text: o.String(), Do: o.Do})
	}
	group(all[n:], "In the way")
	n = len(all)
	if len(r.Items) > 0 {
		all = append(all, htmlreport.Note{Text: "Each pod with a FlexVolume restarts once to come onto the bridge: when its owner wants if the old driver only mounts; all pods with its volumes at once if it attaches or maps them (docs/install.md, The vendor's driver on the nodes). A live migration restarts no pod; before Kubernetes " + release.Reconstruction().Since.String() + " none is live, and all pods of a claim restart together once more. Before flex2csi is removed, each restarts once more, whenever that suits."})
	}
	for _, result := range []itemResult{ready, installCSIDriver, checkCSIDriver, writeMapping, rewrite, replaceClass, unsupported} {
		if slices.ContainsFunc(r.Items, func(i item) bool { return i.Result == result }) {
			all = append(all, htmlreport.Note{Text: string(result) + ": " + result.means()})
		}
	}
	group(all[n:], "For the owners of the volumes")
	n = len(all)
	if all = append(all, htmlreport.Note{Text: r.kubernetes() + "."}); r.Estimate != nil {
		all = append(all, htmlreport.Note{Text: r.Estimate.String()})
	}
	for _, one := range r.Releases {
		for _, text := range one.Lacks {
			all = append(all, htmlreport.Note{Text: one.Release + " lacks " + text})
		}
	}
	group(all[n:], "Kubernetes and time")
	return all
}

// means says what a result is for the owner of a volume.
func (r itemResult) means() string {
	switch r {
	case ready:
		return "it can migrate when the bridge is installed."
	case installCSIDriver, checkCSIDriver:
		return "a preset fits; the CSI driver is missing, or it is not known whether it is there."
	case writeMapping:
		return "the operator of flex2csi writes a mapping for its driver first."
	case rewrite:
		return "it is part of a pod or template; its author replaces it, with a claim for example."
	case replaceClass:
		return "it makes new FlexVolumes; a CSI StorageClass takes its place."
	}
	return "flex2csi has no way to CSI for its driver."
}

// group gives notes a heading.
func group(notes []htmlreport.Note, heading string) {
	if len(notes) > 0 {
		notes[0].Heading = heading
	}
}

func dash(s string) string { return cmp.Or(s, "-") }

// printable keeps what a terminal would take for commands out of the output.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
