package migrate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Table prints the situation for people: what is urgent, a line for each volume,
// and below it what is wrong and what to do; wide shows all that is known.
func (situation *Situation) Table(out io.Writer, wide bool) error {
	var b strings.Builder
	situation.urgent(&b)
	if len(situation.Volumes) > 0 {
		if err := situation.volumes(&b, wide); err != nil {
			return err
		}
	}
	for i := range situation.Volumes {
		situation.Volumes[i].details(&b, wide)
	}
	for _, p := range situation.Problems {
		fmt.Fprintf(&b, "\nnot known: %s\n", p)
	}
	situation.summary(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// urgent is what the operator has to do before all else.
func (situation *Situation) urgent(b *strings.Builder) {
	if names := situation.withoutVolume(); len(names) > 0 {
		fmt.Fprintf(b, "URGENT: a migration stopped where there is no PersistentVolume: %s. Do this now:\n\n    flex2csi migrate resume %s\n\n", strings.Join(names, ", "), strings.Join(names, " "))
	}
}

func (situation *Situation) volumes(b *strings.Builder, wide bool) error {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "VOLUME\tCLAIM\tNOW\tSTATE\tSTAGE\tSINCE\tOLD MOUNTS")
	if wide {
		fmt.Fprint(w, "\tTO\tMODE\tFLEXVOLUME DRIVER\tCSI DRIVER\tHANDLE\tBY\tREQUESTS")
	}
	fmt.Fprintln(w)
	for _, v := range situation.Volumes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d", v.Name, dash(v.Claim), v.Now, v.State, dash(string(v.Stage)), situation.age(v.Since), len(v.OldMounts))
		if wide {
			fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\t%s\t%s\t%d", volumeType(v.Direction), dash(string(v.Mode)), dash(v.FlexDriver), dash(v.CSIDriver), dash(v.Handle), dash(v.By), v.Requests)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
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

// details are what a person has to know of a volume.
func (v *VolumeStatus) details(b *strings.Builder, wide bool) {
	quiet := v.Trouble == "" && (v.Next == "" || v.State == Migrated)
	if quiet && (!wide || len(v.OldMounts) == 0) {
		return
	}
	fmt.Fprintf(b, "\n%s: %s\n", v.Name, v.State)
	if v.Trouble != "" {
		fmt.Fprintf(b, "  %s\n", v.Trouble)
	}
	if wide {
		for _, m := range v.OldMounts {
			fmt.Fprintf(b, "  old mount  %s%s\n", m, besides(m.TakenOver))
		}
	}
	if v.Next != "" {
		fmt.Fprintf(b, "  → %s\n", v.Next)
	}
}

func besides(takenOver bool) string {
	if takenOver {
		return ", next to that of the kubelet's CSI plugin"
	}
	return ", and none of the kubelet's CSI plugin yet"
}

// summary counts.
func (situation *Situation) summary(b *strings.Builder) {
	count, mounts := map[State]int{}, 0
	for _, v := range situation.Volumes {
		count[v.State]++
		mounts += len(v.OldMounts)
	}
	fmt.Fprintf(b, "\n%d volumes are migrated, %d taken back", count[Migrated], count[TakenBack])
	for _, s := range []State{UnderWay, Halted, WithoutVolume, NoRecord, Contradictory, Removed} {
		if count[s] > 0 {
			fmt.Fprintf(b, ", %d %s", count[s], s)
		}
	}
	fmt.Fprintf(b, ". %d mounts of the bridge are left of migrated volumes", mounts)
	if mounts > 0 {
		b.WriteString(", until their pods are restarted, whenever that suits")
	}
	b.WriteString(".\n")
	var rest []string
	for _, driver := range slices.Sorted(maps.Keys(situation.Remaining)) {
		rest = append(rest, fmt.Sprintf("%d of %s", situation.Remaining[driver], driver))
	}
	fmt.Fprintf(b, "FlexVolumes that are left: %s.\n", cmp.Or(strings.Join(rest, ", "), "none"))
	if situation.Holder != "" {
		fmt.Fprintf(b, "%s migrates just now.\n", situation.Holder)
	}
}
