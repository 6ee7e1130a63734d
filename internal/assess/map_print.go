package assess

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
func (r *MapResult) Show(view report.View) *report.Report {
	s := r.Summary()
	columns := []string{"Name", "Claim", "FlexVolume driver", "CSI driver", "Handle", "Result"}
	if view == report.Wide {
		columns = slices.Insert(columns, 5, "Pod", "Attached by")
	}
	volumes := report.Of(r.Plans, func(p *Plan) []string {
		cells := []string{p.DisplayName(), p.Claim, p.FlexDriver, p.CSIDriver, p.Redact(p.Handle), p.result()}
		if view == report.Wide {
			cells = slices.Insert(cells, 5, p.Pod, p.Attached)
		}
		return cells
	}, columns...)
	counts := func(volumes, ok int) []string {
		return []string{strconv.Itoa(volumes), strconv.Itoa(ok), strconv.Itoa(volumes - ok)}
	}
	namespaces := report.Of(s.Namespaces, func(n NamespaceCount) []string {
		return append([]string{n.Namespace}, counts(n.Volumes, n.OK)...)
	}, "Namespace", "Volumes", "OK", "Not OK")
	drivers := report.Of(s.Drivers, func(d DriverCount) []string {
		return append([]string{d.FlexDriver, d.CSIDriver}, counts(d.Volumes, d.OK)...)
	}, "FlexVolume driver", "CSI driver", "Volumes", "OK", "Not OK")
	var texts []string
	for _, d := range s.Drivers {
		if len(d.Idle) > 0 {
			texts = append(texts, d.FlexDriver+": the mapping does not read these options, which have no effect (volumes): "+counted(d.Idle))
		}
		if len(d.Empty) > 0 {
			texts = append(texts, d.FlexDriver+": the volume context has no value for these keys (volumes): "+counted(d.Empty))
		}
	}
	return &report.Report{Sections: []report.Section{{Rows: volumes}, {Rows: namespaces}, {Rows: drivers}, {Notes: report.Notes(append(texts, s.String())...)}}}
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
func (r *MapResult) ObjectNames() (names []string) {
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
