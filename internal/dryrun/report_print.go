package dryrun

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints a line for each volume, and what the Summary counts.
func (r *Report) Table(out io.Writer, wide bool) error {
	b := bufio.NewWriter(out)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	more := ""
	if wide {
		more = "POD\tATTACHED BY\t"
	}
	fmt.Fprintf(t, "NAME\tCLAIM\tFLEXVOLUME DRIVER\tCSI DRIVER\tHANDLE\t%sRESULT\n", more)
	for _, p := range r.Plans {
		if wide {
			more = fmt.Sprintf("%s\t%s\t", dash(p.Pod), dash(p.Attached))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s%s\n", dash(p.DisplayName()), dash(p.Claim), dash(p.FlexDriver), dash(p.CSIDriver), dash(p.Redact(p.Handle)), more, p.result())
	}
	s := r.Summary()
	fmt.Fprint(t, "\fNAMESPACE\tVOLUMES\tOK\tNOT OK\n")
	for _, n := range s.Namespaces {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", dash(n.Namespace), n.Volumes, n.OK, n.Volumes-n.OK)
	}
	fmt.Fprint(t, "\fFLEXVOLUME DRIVER\tCSI DRIVER\tVOLUMES\tOK\tNOT OK\n")
	for _, d := range s.Drivers {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\n", dash(d.FlexDriver), dash(d.CSIDriver), d.Volumes, d.OK, d.Volumes-d.OK)
	}
	for _, d := range s.Drivers {
		if len(d.Idle) > 0 {
			fmt.Fprintf(t, "\f%s: the mapping does not read these options, which have no effect (volumes): %s\n", d.FlexDriver, counted(d.Idle))
		}
		if len(d.Empty) > 0 {
			fmt.Fprintf(t, "\f%s: the volume context has no value for these keys (volumes): %s\n", d.FlexDriver, counted(d.Empty))
		}
	}
	fmt.Fprintf(t, "\f%s\n", s)
	if err := t.Flush(); err != nil {
		return err
	}
	return b.Flush()
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

func dash(s string) string { return orDefault(s, "-") }
