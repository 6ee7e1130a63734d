package bridgestatus

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

func (s *BridgeStatus) volumeTable(wide, byPod bool) table {
	if byPod {
		return s.podTable(wide)
	}
	t := table{header: []string{"VOLUME", "CSI DRIVER", "HANDLE", "PHASE", "PODS", "SINCE", "DOING", "TROUBLE"}}
	if wide {
		t.header = append(t.header, "FLEX DRIVER", "FSTYPE", "ACCESS MODE", "ATTACHED", "STAGED AT")
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		t.add(v.PersistentVolume, v.CSIDriver, v.VolumeHandle, string(v.Phase), v.pods(), s.age(v.since()), s.doing(v, "", wide), v.trouble(wide),
			v.FlexDriver, v.FSType, v.AccessMode, v.attached(), v.staged())
	}
	return t
}

func (s *BridgeStatus) podTable(wide bool) table {
	t := table{header: []string{"NAMESPACE", "POD", "VOLUME", "CSI DRIVER", "PHASE", "SINCE", "DOING", "TROUBLE"}}
	if wide {
		t.header = append(t.header, "UID", "READ-ONLY", "DIRECTORY", "TARGET PATH")
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		for j := range v.Targets {
			to := &v.Targets[j]
			t.add(to.Pod.Namespace, to.Pod.Name, v.PersistentVolume, v.CSIDriver, string(to.Phase), s.age(to.Since), s.doing(v, to.Dir, wide), to.trouble(wide),
				to.Pod.UID, fmt.Sprint(to.ReadOnly), to.Dir, to.TargetPath)
		}
	}
	return t
}

func (s *BridgeStatus) driverTable() table {
	t := table{header: []string{"CSI DRIVER", "FLEX DRIVER", "SERVICE", "CONNECTED", "VERSION", "SINCE", "RECONNECTS", "TROUBLE"}}
	for _, d := range s.Drivers {
		for _, c := range d.Services {
			connected := "no"
			switch {
			case c.Connected:
				connected = "yes"
			case c.Since == nil && c.LastError == "":
				connected = "not needed yet"
			}
			t.add(d.CSIDriver, d.FlexDriver, c.Name, connected, c.Version, s.age(c.Since), fmt.Sprint(c.Reconnects), c.LastError)
		}
	}
	return t
}

func (s *BridgeStatus) failureTable(wide bool) table {
	t := table{header: []string{"FAILED CALL", "VOLUME", "POD", "SINCE", "LAST", "TIMES", "CODE", "MESSAGE"}}
	if wide {
		t.header = append(t.header, "REQUEST", "DIRECTORY")
	}
	for i := range s.Failures {
		f := &s.Failures[i]
		t.add(f.Command, f.PersistentVolume, f.Pod.String(), s.age(&f.Since), s.age(&f.Last), fmt.Sprint(f.Count), f.Code, short(f.Message, wide), f.Request, f.Dir)
	}
	return t
}

func (s *BridgeStatus) lostTable() table {
	t := table{header: []string{"MOUNTED WITHOUT A RECORD", "VOLUME", "FLEX DRIVER"}}
	for _, l := range s.Lost {
		t.add(l.Dir, l.PersistentVolume, l.FlexDriver)
	}
	return t
}

func (s *BridgeStatus) pendingUnmountTable() table {
	t := table{header: []string{"UNMOUNTED WITHOUT THE DAEMON", "FLEX DRIVER", "SINCE"}}
	for _, u := range s.PendingUnmounts {
		t.add(u.Dir, u.FlexDriver, s.age(&u.Since))
	}
	return t
}

// since returns when the first pod got the volume, or the time of the last change.
func (v *VolumeStatus) since() *time.Time {
	first := v.Changed
	if v.Phase != Published {
		return first
	}
	for i := range v.Targets {
		if t := v.Targets[i].Since; t != nil && (first == nil || t.Before(*first)) {
			first = t
		}
	}
	return first
}

func (v *VolumeStatus) pods() string {
	names := make([]string, 0, len(v.Targets))
	for i := range v.Targets {
		names = append(names, v.Targets[i].Pod.String())
	}
	return strings.Join(names, ",")
}

// String returns namespace/name, or the UID if the name is not known.
func (p PodRef) String() string {
	if p.Name == "" {
		return p.UID
	}
	return p.Namespace + "/" + p.Name
}

// Describe is String for messages: not all callouts have the name.
func (p PodRef) Describe() string { return cmp.Or(p.String(), "(not known)") }

// doing returns the operations of a volume for dir, or for no directory of a pod, with
// their durations. With "" it returns all.
func (s *BridgeStatus) doing(v *VolumeStatus, dir string, wide bool) string {
	var all []string
	for _, o := range v.Operations {
		if dir != "" && o.Dir != "" && o.Dir != dir {
			continue
		}
		text := o.Command + " " + s.age(&o.Since)
		switch {
		case o.Begun == nil:
			text += " (waits)"
		case o.Step != "":
			text += " (" + o.Step + " " + s.age(o.StepSince) + ")"
		}
		if wide && o.Request != "" {
			text += " [" + o.Request + "]"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (v *VolumeStatus) trouble(wide bool) string {
	var all []string
	errorText := v.LastError
	for i := range v.Targets {
		if errorText == "" {
			errorText = v.Targets[i].LastError
		}
	}
	if n := v.corrupted(); n > 0 {
		all = append(all, fmt.Sprintf("%d corrupted", n))
	}
	if a := v.Attachment; a != nil && a.Lost {
		all = append(all, "its VolumeAttachment is lost")
	}
	if v.TakenOver {
		all = append(all, "migrated: the kubelet's CSI plugin has it, too")
	}
	if errorText != "" {
		all = append(all, short(errorText, wide))
	}
	return strings.Join(all, "; ")
}

func (t *targetStatus) trouble(wide bool) string {
	var all []string
	if t.Corrupted != "" {
		all = append(all, "corrupted: "+short(t.Corrupted, wide))
	}
	if t.LastError != "" {
		all = append(all, short(t.LastError, wide))
	}
	return strings.Join(all, "; ")
}

func (v *VolumeStatus) attached() string {
	if v.Attachment == nil {
		return ""
	}
	how := v.Attachment.By
	if v.Attachment.Object != "" {
		how += ", " + v.Attachment.Object
	}
	if v.Attachment.Unmanaged {
		how += " (not ours)"
	}
	return fmt.Sprintf("%s to %s by %s", v.Attachment.Phase, v.Attachment.NodeID, how)
}

func (v *VolumeStatus) staged() string {
	if v.Staging == nil {
		return ""
	}
	return v.Staging.Path
}

// shortError bounds errors in tables that are not wide.
const shortError = 60

func short(text string, wide bool) string {
	runes := []rune(text)
	if wide || len(runes) <= shortError {
		return text
	}
	return string(runes[:shortError-1]) + "…"
}

// age is how long ago something was, roughly.
func (s *BridgeStatus) age(t *time.Time) string {
	if t == nil {
		return ""
	}
	return since(s.Time, *t)
}

func since(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
