package migrate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/htmlreport"
)

// madeLayout is the time of a report.
const madeLayout = "2006-01-02 15:04 MST"

// HTML writes the plan as a page.
func (p *Plan) HTML(out io.Writer) error {
	page := &htmlreport.Report{
		Title: "Migration plan", Subtitle: p.Server + ", " + p.Made.UTC().Format(madeLayout),
		Notes: p.notes(),
		Table: htmlreport.Table{Columns: []string{"Name", "Claim", "FlexVolume driver", "CSI driver", "Volume handle", "Pods", "Nodes", "Method", "To decide", "In the way"}},
	}
	count := map[Method]int{}
	var methods, drivers, namespaces, nodes, checks []string
	for _, v := range p.Volumes {
		count[v.Method]++
		methods, drivers, namespaces, nodes = append(methods, v.Method.String()), append(drivers, v.FlexDriver), append(namespaces, namespaceOf(v.Claim)), append(nodes, v.nodes()...)
		var inTheWay []string
		for _, c := range v.Checks {
			if c.Status != OK && c.Status != Note {
				checks = append(checks, c.Name)
				inTheWay = append(inTheWay, c.Name+": "+c.Evidence)
			}
		}
		page.Table.Rows = append(page.Table.Rows, []string{
			v.Name, v.Claim, v.FlexDriver, v.CSIDriver, v.Handle, strconv.Itoa(len(v.Pods)), strings.Join(v.nodes(), " "),
			v.Method.String(), strconv.Itoa(v.count(Decide)), strings.Join(inTheWay, "; "),
		})
	}
	page.Facts = []htmlreport.Fact{{Name: "Volumes", Value: strconv.Itoa(len(p.Volumes))}}
	for _, m := range []Method{Live, PodRestart, Offline, No, Unknown} {
		page.Facts = append(page.Facts, htmlreport.Fact{Name: m.String(), Value: strconv.Itoa(count[m])})
	}
	page.Charts = []htmlreport.Chart{
		htmlreport.Count("By method", methods), htmlreport.Count("In the way, or to decide", checks), htmlreport.Count("By driver", drivers),
		htmlreport.Count("By namespace", namespaces), htmlreport.Count("By node", nodes),
	}
	return htmlreport.Write(out, page)
}

// notes are the checks that are not about a volume, and what creates FlexVolumes still.
func (p *Plan) notes() (all []htmlreport.Note) {
	for _, c := range p.Checks {
		if c.Status != OK {
			all = append(all, htmlreport.Note{Text: fmt.Sprintf("%s, %s: %s", words(c.Status), c.Name, c.Evidence), Do: c.Do})
		}
	}
	for _, o := range p.Related {
		all = append(all, htmlreport.Note{Text: o.Kind + " " + o.Name + ": " + o.What, Do: strings.Join(o.Steps, "; ")})
	}
	if len(all) > 0 {
		all[0].Heading = "To do by hand"
	}
	return append(all,
		htmlreport.Note{Heading: "What happens", Text: lostForAMoment},
		htmlreport.Note{Text: "live: the volume migrates under its running pods, which notice nothing. From its next start, whenever that suits, a pod does not need the bridge."},
		htmlreport.Note{Text: "after a pod restart: as live, after a restart of its pods has brought the volume onto the bridge, or with --rolling or --offline."},
		htmlreport.Note{Text: "offline: while no pod of the volume runs. no: what is in the way comes first."},
	)
}

// HTML writes how the migrations are as a page.
func (situation *Situation) HTML(out io.Writer) error {
	page := &htmlreport.Report{
		Title: "Migrations", Subtitle: situation.Server + ", " + situation.Made.UTC().Format(madeLayout),
		Table: htmlreport.Table{Columns: []string{"Name", "Claim", "FlexVolume driver", "CSI driver", "State", "Stage", "Since", "Lost, seconds", "Pods with the old mount", "Trouble", "Next"}},
	}
	remaining := 0
	left := htmlreport.Chart{Title: "FlexVolumes that are left, by driver"}
	for driver, n := range situation.Remaining {
		remaining += n
		left.Bars = append(left.Bars, htmlreport.Bar{Name: driver, Count: n})
	}
	left.Sort()
	var states, drivers, namespaces []string
	migrated := 0
	for _, v := range situation.Volumes {
		if v.State == Migrated {
			migrated++
		}
		states, drivers, namespaces = append(states, v.State.String()), append(drivers, v.FlexDriver), append(namespaces, namespaceOf(v.Claim))
		since := ""
		if !v.Since.IsZero() {
			since = v.Since.UTC().Format(madeLayout)
		}
		page.Table.Rows = append(page.Table.Rows, []string{
			v.Name, v.Claim, v.FlexDriver, v.CSIDriver, v.State.String(), string(v.Stage), since, seconds(v.LostSeconds), strconv.Itoa(len(v.OldMounts)), v.Trouble, v.Next,
		})
	}
	page.Facts = []htmlreport.Fact{
		{Name: "Volumes of migrations", Value: strconv.Itoa(len(situation.Volumes))},
		{Name: "Migrated", Value: strconv.Itoa(migrated)},
		{Name: "FlexVolumes that are left", Value: strconv.Itoa(remaining)},
		{Name: "Migrates now", Value: dash(situation.Holder)},
	}
	page.Charts = []htmlreport.Chart{htmlreport.Count("By state", states), left, situation.lostTimes(), htmlreport.Count("By driver", drivers), htmlreport.Count("By namespace", namespaces)}
	for _, problem := range situation.Problems {
		page.Notes = append(page.Notes, htmlreport.Note{Text: problem})
	}
	if len(page.Notes) > 0 {
		page.Notes[0].Heading = "Not known"
	}
	return htmlreport.Write(out, page)
}

// lostTimes is for how long claims were Lost; without bars if none was.
func (situation *Situation) lostTimes() htmlreport.Chart {
	times := []struct {
		below float64
		bar   htmlreport.Bar
	}{
		{0.5, htmlreport.Bar{Name: "under 0.5 s"}},
		{1, htmlreport.Bar{Name: "0.5 to 1 s"}},
		{2, htmlreport.Bar{Name: "1 to 2 s"}},
		{15, htmlreport.Bar{Name: "2 to 15 s"}},
		{math.Inf(1), htmlreport.Bar{Name: "15 s and more"}},
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
	c := htmlreport.Chart{Title: "For how long claims were Lost"}
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

func namespaceOf(claim string) string {
	namespace, _, _ := strings.Cut(claim, "/")
	return namespace
}
