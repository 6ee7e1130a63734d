package assess

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/report"
)

func (i item) cells() []string {
	return []string{string(i.Kind), i.Namespace, i.Name, i.FlexDriver, i.Claim, i.StorageClass, strconv.Itoa(i.Pods), strings.Join(i.Nodes, " "), i.Preset, i.CSIDriver, string(i.Result), i.Path}
}

// Show makes a summary; wide, CSV and a page have all items.
func (r *Report) Show(view report.View) *report.Report {
	cells := item.cells
	columns := []string{"Kind", "Namespace", "Name", "FlexVolume driver", "Claim", "StorageClass", "Pods", "Nodes", "Preset", "CSI driver", "Result", "Path"}
	if last := len(columns) - 1; view != report.Wide {
		columns, cells = columns[:last], func(i item) []string { return i.cells()[:last] }
	}
	items := report.Section{Rows: report.Of(r.Items, cells, columns...)}
	next := report.Section{Heading: "Next:", Numbered: true}
	for _, s := range r.Next {
		next.Notes = append(next.Notes, report.Note{Text: s.Do, Command: s.Command})
	}
	obstacles := report.Section{Heading: "In the way:"}
	for _, o := range r.Obstacles {
		obstacles.Notes = append(obstacles.Notes, report.Note{Text: o.String(), Next: o.Do})
	}
	switch view {
	case report.CSV:
		return &report.Report{Sections: []report.Section{items}}
	case report.Page:
		return r.page(next, report.Section{Heading: "Refused", Notes: r.refusal()}, obstacles, r.owners(), r.kubernetesAndTime(), items)
	}
	all := []report.Section{{Notes: report.Notes(fmt.Sprintf("%s: %s. %s.", r.Source, r.found(), r.kubernetes()))}}
	if len(r.Drivers) > 0 {
		all = append(all, report.Section{Rows: report.Of(r.Drivers, driverItems.cells,
			"FlexVolume driver", "PVs", "Inline", "In templates", "Ephemeral", "Classes", "Pending", "Claim templates", "Preset", "CSI driver")})
	}
	if view == report.Wide && len(r.Items) > 0 {
		all = append(all, items)
	}
	all = append(all, report.Section{Notes: r.refusal()}, obstacles)
	if r.Estimate != nil {
		all = append(all, report.Section{Notes: report.Notes(r.Estimate.String())})
	}
	return &report.Report{Sections: append(all, next)}
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

// refusal says what they are; nil without a configuration.
func (r *Report) refusal() []report.Note {
	names := r.refused()
	text := "Installed with this configuration, flex2csi refuses no pod for an inline volume."
	switch {
	case !r.configured:
		return nil
	case len(names) > 0:
		text = fmt.Sprintf("Installed with this configuration, flex2csi refuses new pods from these %d pods and templates, for an inline volume (docs/install.md#pods-with-inline-volumes):", len(names))
	case len(r.Incomplete) > 0:
		text = "Installed with this configuration, flex2csi refuses no pod for an inline volume, but not all was read."
	}
	return []report.Note{{Text: text, Notes: report.Notes(names...)}}
}

func (d driverItems) cells() []string {
	all := []string{d.FlexDriver}
	for _, k := range kinds() {
		all = append(all, strconv.Itoa(d.Counts[k]))
	}
	var names, drivers []string
	for _, f := range d.Presets {
		names, drivers = append(names, f.Preset), append(drivers, f.CSIDriver+f.state())
	}
	return append(all, strings.Join(names, ", "), strings.Join(drivers, ", "))
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
	return strings.TrimPrefix(o.FlexDriver+": "+o.What, ": ")
}

func (e timeEstimate) String() string {
	between := (time.Duration(e.MinSeconds) * time.Second).String()
	if e.MaxSeconds > e.MinSeconds {
		between += " to " + (time.Duration(e.MaxSeconds) * time.Second).String()
	}
	text := fmt.Sprintf("Migrating the %d PersistentVolumes that are ready, %d of them in use, one by one, takes %s by the figures of docs/migrate-guide.md#figures.", e.Volumes, e.WithPods, between)
	if e.WithPods > 0 && !e.Live {
		text += fmt.Sprintf(" Before Kubernetes %s no migration is live: the time in which each pod stops and starts again comes on top.", distribution.Reconstruction().Since)
	}
	return text
}

func (r *Report) page(sections ...report.Section) *report.Report {
	count := func(title string, texts func(item) []string) report.Chart { return report.Count(title, r.Items, texts) }
	return &report.Report{
		Title: "FlexVolume assessment", Subtitle: fmt.Sprintf("%s, %s", r.Source, r.Made.Format("2006-01-02 15:04 MST")),
		Facts: []report.Fact{
			{Name: "Have or make FlexVolumes", Value: strconv.Itoa(r.FlexVolumes)}, {Name: "FlexVolume drivers", Value: strconv.Itoa(len(r.Drivers))}, {Name: "Migrated", Value: strconv.Itoa(r.Migrated)},
		},
		Charts: []report.Chart{
			count("By result", func(i item) []string { return []string{string(i.Result)} }),
			count("By kind", func(i item) []string { return []string{string(i.Kind)} }),
			count("By driver", func(i item) []string { return []string{i.FlexDriver} }),
			count("By namespace", func(i item) []string { return []string{i.Namespace} }),
			count("By node", func(i item) []string { return i.Nodes }),
		},
		Sections: sections,
	}
}

func (r *Report) owners() report.Section {
	s := report.Section{Heading: "For the owners of the volumes"}
	if len(r.Items) > 0 {
		s.Notes = report.Notes("Each pod with a FlexVolume restarts once to come onto the bridge: when its owner wants if the old driver only mounts; all pods with its volumes at once if it attaches or maps them (docs/install.md, The vendor's driver on the nodes). A live migration restarts no pod; before Kubernetes " + distribution.Reconstruction().Since.String() + " none is live, and all pods of a claim restart together once more. Before flex2csi is removed, each restarts once more, whenever that suits.")
	}
	for _, result := range []itemResult{ready, installCSIDriver, checkCSIDriver, writeMapping, rewrite, replaceClass, unsupported} {
		if slices.ContainsFunc(r.Items, func(i item) bool { return i.Result == result }) {
			s.Notes = append(s.Notes, report.Note{Text: string(result) + ": " + result.means()})
		}
	}
	return s
}

func (r *Report) kubernetesAndTime() report.Section {
	texts := []string{r.kubernetes() + "."}
	if r.Estimate != nil {
		texts = append(texts, r.Estimate.String())
	}
	for _, one := range r.Releases {
		for _, text := range one.Lacks {
			texts = append(texts, one.Release+" lacks "+text)
		}
	}
	return report.Section{Heading: "Kubernetes and time", Notes: report.Notes(texts...)}
}

// means says what a result is for the owner of a volume.
func (r itemResult) means() string {
	const presetFits = "a preset fits; the CSI driver is missing, or it is not known whether it is there."
	return map[itemResult]string{
		ready:            "it can migrate when the bridge is installed.",
		installCSIDriver: presetFits,
		checkCSIDriver:   presetFits,
		writeMapping:     "the operator of flex2csi writes a mapping for its driver first.",
		rewrite:          "it is part of a pod or template; its author replaces it, with a claim for example.",
		replaceClass:     "it makes new FlexVolumes; a CSI StorageClass takes its place.",
		unsupported:      "flex2csi has no way to CSI for its driver.",
	}[r]
}
