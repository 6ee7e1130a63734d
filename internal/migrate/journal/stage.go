package journal

// A Stage is how far a volume is on its way. A migration goes from one to the
// next, and a rollback through the same ones with the volumes exchanged.
type Stage string

// The stages, in their order. The PersistentVolume is not there from Deleted to
// Created, and that begins only when the replacement has been accepted and is
// written down.
const (
	Planned  Stage = "Planned"
	BackedUp Stage = "BackedUp"
	Retained Stage = "Retained"
	Accepted Stage = "Accepted"
	Stopped  Stage = "Stopped" // not live: its pods are
	Deleting Stage = "Deleting"
	Deleted  Stage = "Deleted"
	Created  Stage = "Created"
	Bound    Stage = "Bound"
	Attached Stage = "Attached"
	// TakenOver: the kubelets of all its pods have it through the plugin that the
	// new volume is for.
	TakenOver Stage = "TakenOver"
	Finished  Stage = "Finished"
)

// A Direction is what the volume becomes.
type Direction string

// The directions.
const (
	ToCSI        Direction = "ToCSI"
	ToFlexVolume Direction = "ToFlexVolume" // rollback
)

// A Mode is what becomes of the pods meanwhile.
type Mode string

// The modes.
const (
	Live    Mode = "Live"    // they go on
	Rolling Mode = "Rolling" // the one pod is restarted
	Offline Mode = "Offline" // a person has stopped them
)
