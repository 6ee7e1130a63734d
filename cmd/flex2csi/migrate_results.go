package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
)

// results are the results of all volumes.
type results struct {
	all []migrate.Result
	// left were not started, as the plan said.
	left []migrate.Result
	// named are volumes and claims selected by name: if one of them is left, the
	// command fails.
	named []string
	// already are volumes that were done before.
	already []string
	// back: the result should be FlexVolumes.
	back bool
	// unread are records that cannot be read.
	unread error
}

// show makes a table.
func (r *results) show(view report.View) *report.Report {
	said := map[string][]string{} // what is true of many is said once
	var texts []string
	for _, v := range r.all {
		if v.Why == "" {
			continue
		}
		text := outcome(v) + ": " + v.Why
		if said[text] == nil {
			texts = append(texts, text)
		}
		said[text] = append(said[text], v.Volume)
	}
	for i, text := range texts {
		texts[i] = some(said[text]) + ": " + text
	}
	columns := []string{"Volume", "Claim", "Result", "Stage", "Lost for", "Taken over after", "Took", "Requests"}
	if view == report.Wide {
		columns = append(columns, "Direction", "Mode")
	}
	rows := report.Of(r.all, func(v migrate.Result) []string {
		return []string{v.Volume, v.Claim, outcome(v), string(v.Stage), time0(v.Lost), time0(v.TakenOver), time0(v.Took), number(v.Requests), direction(v.Direction), string(v.Mode)}[:len(columns)]
	}, columns...)
	return &report.Report{Sections: []report.Section{{Rows: rows}, {Notes: report.Notes(texts...)}}}
}

// time0 returns an empty text for zero: the time is not known.
func time0(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return short(d)
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// A resultDocument has the results of all volumes.
type resultDocument struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Volumes    []resultVolume `json:"volumes"`
}

type resultVolume struct {
	Name             string  `json:"name"`
	Claim            string  `json:"claim,omitempty"`
	Direction        string  `json:"direction,omitempty"`
	Mode             string  `json:"mode,omitempty"`
	Outcome          string  `json:"outcome"`
	Stage            string  `json:"stage,omitempty"`
	Why              string  `json:"why,omitempty"`
	LostSeconds      float64 `json:"lostSeconds,omitempty"`
	TakenOverSeconds float64 `json:"takenOverSeconds,omitempty"`
	TookSeconds      float64 `json:"tookSeconds,omitempty"`
	Requests         int     `json:"requests,omitempty"`
}

func (r *results) document() *resultDocument {
	d := &resultDocument{APIVersion: "flex2csi.io/v1alpha1", Kind: "MigrationResult", Volumes: []resultVolume{}}
	for _, v := range slices.Concat(r.all, r.left) {
		d.Volumes = append(d.Volumes, resultVolume{
			Name: v.Volume, Claim: v.Claim, Direction: string(v.Direction), Mode: string(v.Mode), Outcome: string(v.Outcome), Stage: string(v.Stage), Why: v.Why,
			LostSeconds: v.Lost.Seconds(), TakenOverSeconds: v.TakenOver.Seconds(), TookSeconds: v.Took.Seconds(), Requests: v.Requests,
		})
	}
	return d
}

// ObjectNames returns the volumes.
func (d *resultDocument) ObjectNames() (names []string) {
	for _, v := range d.Volumes {
		names = append(names, "persistentvolume/"+v.Name)
	}
	return names
}

// err returns nil if all selected volumes are done.
func (r *results) err() error {
	var unfinished, back, interrupted, left, unknown []string
	for _, v := range r.all {
		switch {
		case v.Outcome == migrate.Done, v.Outcome == migrate.PutBack && r.back, v.Outcome == migrate.Later && !r.isNamed(v):
		case v.Outcome == migrate.PutBack:
			back = append(back, v.Volume)
		case v.Outcome == migrate.Interrupted:
			interrupted = append(interrupted, v.Volume)
		case v.Outcome == migrate.Left, v.Outcome == migrate.Later:
			left = append(left, v.Volume)
		default:
			unfinished = append(unfinished, v.Volume)
		}
	}
	for _, v := range r.left {
		if slices.Contains(r.already, v.Volume) {
			continue
		}
		switch {
		case v.Outcome == migrate.Undecided:
			unknown = append(unknown, v.Volume)
		case r.isNamed(v):
			left = append(left, v.Volume)
		}
	}
	var parts []string
	add := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s", what, some(names)))
		}
	}
	add("not finished", unfinished)
	add("interrupted", interrupted)
	add("put back", back)
	add("left as it was", left)
	add("not known, try again", unknown)
	if len(parts) == 0 {
		return r.unread
	}
	text := strings.Join(parts, "; ")
	if len(unfinished)+len(interrupted) > 0 {
		text += ". flex2csi migrate status shows how they are, resume goes on, rollback goes back"
	}
	return errors.Join(errors.New(text), r.unread)
}

// isNamed reports whether a volume was selected by its name or its claim's.
func (r *results) isNamed(v migrate.Result) bool {
	return slices.Contains(r.named, v.Volume) || (v.Claim != "" && slices.Contains(r.named, v.Claim))
}

// some returns the first names of a list.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func direction(d journal.Direction) string {
	if d == journal.ToFlexVolume {
		return "to FlexVolume"
	}
	return "to CSI"
}
