package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/report"
)

// Show makes what is urgent, a line for each volume, and below it what is wrong and what to do;
// wide shows all that is known.
func (situation *Situation) Show(view report.View) *report.Report {
	if view == report.Page {
		return situation.page()
	}
	columns := []string{"Volume", "Claim", "Now", "State", "Stage", "Since", "Old mounts"}
	if view == report.Wide {
		columns = append(columns, "To", "Mode", "FlexVolume driver", "CSI driver", "Handle", "By", "Requests")
	}
	volumes := report.Of(situation.Volumes, func(v VolumeStatus) []string {
		cells := []string{v.Name, v.Claim, v.Now, v.State.String(), string(v.Stage), situation.age(v.Since), strconv.Itoa(len(v.OldMounts))}
		return append(cells, volumeType(v.Direction), string(v.Mode), v.FlexDriver, v.CSIDriver, v.Handle, v.By, strconv.Itoa(v.Requests))[:len(columns)]
	}, columns...)
	r := &report.Report{}
	if names := situation.withoutVolume(); len(names) > 0 {
		r.Sections = append(r.Sections, report.Section{Notes: []report.Note{{
			Text:    fmt.Sprintf("URGENT: a migration stopped where there is no PersistentVolume: %s. Do this now:", strings.Join(names, ", ")),
			Command: "flex2csi migrate resume " + strings.Join(names, " "),
		}}})
	}
	if len(situation.Volumes) > 0 {
		r.Sections = append(r.Sections, report.Section{Rows: volumes})
	}
	var notes []report.Note
	for i := range situation.Volumes {
		notes = append(notes, situation.Volumes[i].notes(view == report.Wide)...)
	}
	for _, p := range situation.Problems {
		notes = append(notes, report.Note{Text: "not known: " + p})
	}
	r.Sections = append(r.Sections, report.Section{Notes: notes}, report.Section{Lines: true, Notes: situation.summary()})
	return r
}

// age is how long ago something was, as kubectl shows it.
func (situation *Situation) age(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	switch d := situation.Made.Sub(at); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// notes are what a person has to know of a volume.
func (v *VolumeStatus) notes(isWide bool) []report.Note {
	quiet := v.Trouble == "" && (v.Next == "" || v.State == Migrated)
	if quiet && (!isWide || len(v.OldMounts) == 0) {
		return nil
	}
	n := report.Note{Text: fmt.Sprintf("%s: %s", v.Name, v.State), Next: v.Next}
	if v.Trouble != "" {
		n.Notes = report.Notes(v.Trouble)
	}
	for _, m := range v.OldMounts {
		besides := ", and none of the kubelet's CSI plugin yet"
		if m.TakenOver {
			besides = ", next to that of the kubelet's CSI plugin"
		}
		if isWide {
			n.Notes = append(n.Notes, report.Note{Text: "old mount  " + m.String() + besides})
		}
	}
	return []report.Note{n}
}

// summary counts.
func (situation *Situation) summary() []report.Note {
	count, mounts := map[State]int{}, 0
	for _, v := range situation.Volumes {
		count[v.State]++
		mounts += len(v.OldMounts)
	}
	parts := []string{fmt.Sprintf("%d volumes are migrated, %d taken back", count[Migrated], count[TakenBack])}
	for _, s := range []State{UnderWay, Halted, WithoutVolume, NoRecord, Contradictory, Removed} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	text := fmt.Sprintf("%s. %d mounts of the bridge are left of migrated volumes", strings.Join(parts, ", "), mounts)
	if mounts > 0 {
		text += ", until their pods are restarted, whenever that suits"
	}
	var rest []string
	for _, driver := range slices.Sorted(maps.Keys(situation.Remaining)) {
		rest = append(rest, fmt.Sprintf("%d of %s", situation.Remaining[driver], driver))
	}
	all := report.Notes(text+".", "FlexVolumes that are left: "+cmp.Or(strings.Join(rest, ", "), "none")+".")
	if situation.Holder != "" {
		all = append(all, report.Note{Text: situation.Holder + " migrates just now."})
	}
	return all
}

func (situation *Situation) page() *report.Report {
	volumes := report.Of(situation.Volumes, func(v VolumeStatus) []string {
		since := ""
		if !v.Since.IsZero() {
			since = v.Since.UTC().Format(madeLayout)
		}
		return []string{v.Name, v.Claim, v.FlexDriver, v.CSIDriver, v.State.String(), string(v.Stage), since, seconds(v.LostSeconds), strconv.Itoa(len(v.OldMounts)), v.Trouble, v.Next}
	}, "Name", "Claim", "FlexVolume driver", "CSI driver", "State", "Stage", "Since", "Lost, seconds", "Pods with the old mount", "Trouble", "Next")
	remaining, migrated := 0, 0
	for _, n := range situation.Remaining {
		remaining += n
	}
	for _, v := range situation.Volumes {
		if v.State == Migrated {
			migrated++
		}
	}
	count := func(title string, text func(VolumeStatus) string) report.Chart {
		return report.Count(title, situation.Volumes, func(v VolumeStatus) []string { return []string{text(v)} })
	}
	return &report.Report{
		Title: "Migrations", Subtitle: situation.Server + ", " + situation.Made.UTC().Format(madeLayout),
		Facts: []report.Fact{
			{Name: "Volumes of migrations", Value: strconv.Itoa(len(situation.Volumes))},
			{Name: "Migrated", Value: strconv.Itoa(migrated)},
			{Name: "FlexVolumes that are left", Value: strconv.Itoa(remaining)},
			{Name: "Migrates now", Value: dash(situation.Holder)},
		},
		Charts: []report.Chart{
			count("By state", func(v VolumeStatus) string { return v.State.String() }),
			report.Sorted("FlexVolumes that are left, by driver", situation.Remaining),
			situation.lostTimes(),
			count("By driver", func(v VolumeStatus) string { return v.FlexDriver }),
			count("By namespace", func(v VolumeStatus) string { return namespaceOf(v.Claim) }),
		},
		Sections: []report.Section{{Heading: "Not known", Notes: report.Notes(situation.Problems...)}, {Rows: volumes}},
	}
}

// lostTimes is for how long claims were Lost; without bars if none was.
func (situation *Situation) lostTimes() report.Chart {
	times := []struct {
		below float64
		bar   report.Bar
	}{
		{0.5, report.Bar{Name: "under 0.5 s"}},
		{1, report.Bar{Name: "0.5 to 1 s"}},
		{2, report.Bar{Name: "1 to 2 s"}},
		{15, report.Bar{Name: "2 to 15 s"}},
		{math.Inf(1), report.Bar{Name: "15 s and more"}},
	}
	known := false
	for _, v := range situation.Volumes {
		if v.LostSeconds <= 0 {
			continue
		}
		known = true
		for i := range times {
			if v.LostSeconds < times[i].below {
				times[i].bar.Count++
				break
			}
		}
	}
	c := report.Chart{Title: "For how long claims were Lost"}
	for _, one := range times {
		if known {
			c.Bars = append(c.Bars, one.bar)
		}
	}
	return c
}

// seconds is a duration for a cell.
func seconds(s float64) string {
	if s <= 0 {
		return ""
	}
	return strconv.FormatFloat(s, 'f', 2, 64)
}
