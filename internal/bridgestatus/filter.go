package bridgestatus

import "slices"

// Filter returns the part of the status that one of the names selects: a
// PersistentVolume, a volume handle, a driver, a pod (as NAME, NAMESPACE/NAME or UID)
// or a namespace. A volume selected by a pod or namespace has only their targets. No
// names select everything.
func (s *BridgeStatus) Filter(names []string) *BridgeStatus {
	if len(names) == 0 {
		return s
	}
	named := func(values ...string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return v != "" && slices.Contains(names, v) })
	}
	out := *s
	out.Volumes = []VolumeStatus{}
	for _, v := range s.Volumes {
		if named(v.PersistentVolume, v.VolumeHandle, v.CSIDriver, v.FlexDriver) {
			out.Volumes = append(out.Volumes, v)
			continue
		}
		v.Targets = slices.DeleteFunc(slices.Clone(v.Targets), func(t targetStatus) bool {
			return !named(t.Pod.names()...)
		})
		if len(v.Targets) > 0 {
			out.Volumes = append(out.Volumes, v)
		}
	}
	out.Failures = slices.DeleteFunc(slices.Clone(s.Failures), func(f Failure) bool {
		return !named(f.PersistentVolume, f.FlexDriver) && !named(f.Pod.names()...)
	})
	out.Drivers = slices.DeleteFunc(slices.Clone(s.Drivers), func(d DriverStatus) bool {
		return !named(d.FlexDriver, d.CSIDriver) && !slices.ContainsFunc(out.Volumes, func(v VolumeStatus) bool { return v.FlexDriver == d.FlexDriver })
	})
	return &out
}

// names are the names that select a pod.
func (p PodRef) names() []string {
	return []string{p.Name, p.Namespace, p.Namespace + "/" + p.Name, p.UID}
}
