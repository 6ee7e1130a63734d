package lifecycle

// table returns the rules of a goal, in the order in which they are asked.
func table(g Goal) []Rule {
	switch g {
	case Mount:
		return mountRules()
	case Unmount, Bury:
		return unmountRules()
	case MountDevice:
		return mountDeviceRules()
	case UnmountDevice:
		return unmountDeviceRules()
	case Attach:
		return attachGoalRules()
	case Detach:
		return detachGoalRules()
	case Expand:
		return expandRules()
	case ExpandVolume:
		return expandVolumeRules()
	case Reconcile:
		return reconcileRules()
	}
	return nil
}
