package onnode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
)

// checkUnused refuses to remove drivers that volumes need, and names the pods; with
// Force it prints what will be left. Drivers are those to remove; empty: all.
func (u *removal) checkUnused(s *bridgestatus.BridgeStatus, drivers []string) error {
	lines := inUse(s, drivers)
	if len(lines) == 0 {
		return nil
	}
	list := "\n  " + strings.Join(lines, "\n  ")
	if !u.Force {
		return fmt.Errorf("volumes are in use on this node; end the pods that use them first, or use --force, which leaves them mounted without a driver to unmount them%s", list)
	}
	u.kept = true
	u.warn("these volumes are left as they are, without a driver to unmount them: the pods will stay Terminating until an operator unmounts by hand, or installs flex2csi again%s", list)
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
	for _, t := range s.PendingUnmounts {
		if wanted(t.FlexDriver) {
			lines = append(lines, "unmounted while the daemon was down, the unmount is pending: "+t.Dir)
		}
	}
	if len(drivers) == 0 {
		for _, file := range s.BrokenFiles {
			lines = append(lines, "a record that cannot be read, of a volume that may be staged: "+file)
		}
	}
	return lines
}

func volumeLines(v *bridgestatus.VolumeStatus) (lines []string) {
	name := fmt.Sprintf("volume %s of %s (%s)", cmp.Or(v.PersistentVolume, v.VolumeHandle), v.FlexDriver, v.Phase)
	for i := range v.Targets {
		lines = append(lines, fmt.Sprintf("%s: pod %s, at %s", name, v.Targets[i].Pod.Describe(), v.Targets[i].Dir))
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
	return []string{fmt.Sprintf("%s: no pod has it; %s", name, cmp.Or(strings.Join(what, ", "), "not undone yet")+"; wait half a minute after its last pod")}
}
