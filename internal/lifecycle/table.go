package lifecycle

// tables are the rules of each goal, in the order in which they are asked. They never
// change; the reconciler asks them for thousands of volumes.
var tables = map[Goal][]Rule{
	Mount:           mountRules(),
	Unmount:         unmountRules(),
	CompleteUnmount: unmountRules(),
	MountDevice:     mountDeviceRules(),
	UnmountDevice:   unmountDeviceRules(),
	Attach:          attachGoalRules(),
	Detach:          detachGoalRules(),
	Expand:          expandRules(),
	Reconcile:       reconcileRules(),
}
