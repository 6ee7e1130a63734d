package nodeinstall

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// checkUnused refuses to take away what volumes need, and names the pods; with
// Force it says what will be left. Drivers are those that are to go; empty: all.
func (u *removal) checkUnused(s *bridgestatus.BridgeStatus, drivers []string) error {
	lines := inUse(s, drivers)
	if len(lines) == 0 {
		return nil
	}
	list := "\n  " + strings.Join(lines, "\n  ")
	if !u.Force {
		return fmt.Errorf("volumes are in use on this node: end the pods that use them first, or use --force, which leaves them as they are and nobody to take them away%s", list)
	}
	u.kept = true
	u.warn("this is left as it is, and nobody takes it away: the pods will stay Terminating until somebody unmounts by hand, or installs flex2csi again%s", list)
	return nil
}

// inUse are the volumes that would be left, a line each.
func inUse(s *bridgestatus.BridgeStatus, drivers []string) (lines []string) {
	wanted := func(driver string) bool { return len(drivers) == 0 || slices.Contains(drivers, driver) }
	for i := range s.Volumes {
		if v := &s.Volumes[i]; wanted(v.FlexDriver) {
			lines = append(lines, volumeLines(v)...)
		}
	}
	for _, t := range s.Tombstones {
		if wanted(t.FlexDriver) {
			lines = append(lines, "unmounted while the daemon was away, and not yet cleaned up after: "+t.Dir)
		}
	}
	if len(drivers) == 0 {
		for _, file := range s.BrokenFiles {
			lines = append(lines, "a record that cannot be read, of a volume that may be staged: "+file)
		}
	}
	return lines
}

func volumeLines(v *bridgestatus.Volume) (lines []string) {
	name := fmt.Sprintf("volume %s of %s (%s)", cmp.Or(v.PersistentVolume, v.VolumeHandle), v.FlexDriver, v.Phase)
	for i := range v.Targets {
		lines = append(lines, fmt.Sprintf("%s: pod %s, at %s", name, podName(v.Targets[i].Pod), v.Targets[i].Dir))
	}
	if len(lines) > 0 {
		return lines
	}
	var what []string
	if v.Staging != nil {
		what = append(what, "staged at "+v.Staging.Path)
	}
	if v.DeviceMountPath != "" {
		what = append(what, "marked at "+v.DeviceMountPath)
	}
	if a := v.Attachment; a != nil {
		what = append(what, strings.TrimSpace("attached "+a.Object))
	}
	if v.LastError != "" {
		what = append(what, "last error: "+v.LastError)
	}
	return []string{fmt.Sprintf("%s: no pod has it; %s", name, cmp.Or(strings.Join(what, ", "), "not undone yet"))}
}

// podName is what there is of one: callouts do not all tell.
func podName(p bridgestatus.Pod) string {
	if p.Name == "" {
		return cmp.Or(p.UID, "(not known)")
	}
	return p.Namespace + "/" + p.Name
}
