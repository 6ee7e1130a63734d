package dryrun

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/report"
)

// Show makes a line for each volume, and what the Summary counts.
func (r *Report) Show(view report.View) *report.Report {
	s := r.Summary()
	sections := []report.Section{
		{Rows: report.Of(view, r.Plans, []report.Column[*Plan]{
			{Name: "Name", Cell: (*Plan).DisplayName},
			{Name: "Claim", Cell: func(p *Plan) string { return p.Claim }},
			{Name: "FlexVolume driver", Cell: func(p *Plan) string { return p.FlexDriver }},
			{Name: "CSI driver", Cell: func(p *Plan) string { return p.CSIDriver }},
			{Name: "Handle", Cell: func(p *Plan) string { return p.Redact(p.Handle) }},
			{Name: "Pod", In: report.Wide, Cell: func(p *Plan) string { return p.Pod }},
			{Name: "Attached by", In: report.Wide, Cell: func(p *Plan) string { return p.Attached }},
			{Name: "Result", Cell: (*Plan).result},
		}...)},
		{Rows: report.Of(view, s.Namespaces, []report.Column[NamespaceCount]{
			{Name: "Namespace", Cell: func(n NamespaceCount) string { return n.Namespace }},
			{Name: "Volumes", Cell: func(n NamespaceCount) string { return strconv.Itoa(n.Volumes) }},
			{Name: "OK", Cell: func(n NamespaceCount) string { return strconv.Itoa(n.OK) }},
			{Name: "Not OK", Cell: func(n NamespaceCount) string { return strconv.Itoa(n.Volumes - n.OK) }},
		}...)},
		{Rows: report.Of(view, s.Drivers, []report.Column[DriverCount]{
			{Name: "FlexVolume driver", Cell: func(d DriverCount) string { return d.FlexDriver }},
			{Name: "CSI driver", Cell: func(d DriverCount) string { return d.CSIDriver }},
			{Name: "Volumes", Cell: func(d DriverCount) string { return strconv.Itoa(d.Volumes) }},
			{Name: "OK", Cell: func(d DriverCount) string { return strconv.Itoa(d.OK) }},
			{Name: "Not OK", Cell: func(d DriverCount) string { return strconv.Itoa(d.Volumes - d.OK) }},
		}...)},
	}
	var texts []string
	for _, d := range s.Drivers {
		if len(d.Idle) > 0 {
			texts = append(texts, d.FlexDriver+": the mapping does not read these options, which have no effect (volumes): "+counted(d.Idle))
		}
		if len(d.Empty) > 0 {
			texts = append(texts, d.FlexDriver+": the volume context has no value for these keys (volumes): "+counted(d.Empty))
		}
	}
	return &report.Report{Sections: append(sections, report.Section{Notes: report.Notes(append(texts, s.String())...)})}
}

// counted lists names, each with a number.
func counted(all map[string]int) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		names = append(names, fmt.Sprintf("%s (%d)", name, all[name]))
	}
	return strings.Join(names, ", ")
}

// String is the sum in one line.
func (s *Summary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d volumes: %d ok", s.Volumes, s.Results[OK])
	for _, result := range []Result{NoDriver, NotMapped, Refused, Fails, SameHandle} {
		if n := s.Results[result]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, result)
		}
	}
	return b.String()
}

// DisplayName is the name of a PersistentVolume; for an inline volume that of the pod
// before it.
func (p *Plan) DisplayName() string {
	if p.volume.inline {
		return cmp.Or(p.volume.template, p.Pod) + "/" + p.Volume
	}
	return p.Volume
}

// Message is why the volume does not work, with the volume that it is about.
func (p *Plan) Message() string {
	if p.Result == Fails || p.Volume == "" {
		return p.Reason
	}
	return p.volume.From + ": " + p.Reason
}

// result is the result and its reason in one line, without what other columns say.
func (p *Plan) result() string {
	if p.Reason == "" {
		return string(p.Result)
	}
	_, reason, ok := strings.Cut(p.Reason, " make no volume of the CSI driver "+p.CSIDriver+": ")
	if !ok {
		reason = p.Reason
	}
	return fmt.Sprintf("%s: %s", p.Result, strings.Join(strings.Fields(reason), " "))
}

// attached says how the volume gets attached, or nothing.
func (p *Plan) attached() string {
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			if a.Attachment != nil {
				return "VolumeAttachment"
			}
			if a.RPC == "ControllerPublishVolume" {
				return "controller"
			}
		}
	}
	return ""
}

// ObjectNames returns the volumes, and the pods with inline volumes.
func (r *Report) ObjectNames() (names []string) {
	for _, p := range r.Plans {
		name := "persistentvolume/" + p.Volume
		if p.volume.inline {
			_, pod, _ := strings.Cut(p.Pod, "/")
			name = "pod/" + pod
			if parts := strings.Split(p.volume.template, "/"); len(parts) > 1 {
				name = strings.ToLower(parts[len(parts)-2]) + "/" + parts[len(parts)-1]
			}
		}
		names = append(names, name)
	}
	return names
}
