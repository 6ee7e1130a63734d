// Package migrate turns FlexVolume PersistentVolumes into CSI ones in place: the
// object is replaced by one of the same name with the claim's UID in its claimRef,
// and the claim binds to it again. docs/migrate.md tells people how.
//
// [Planner] makes the checks of each volume (checks, in check.go and check_*.go) and
// concludes in which way it can be replaced ([Method]); it changes nothing. [Runner]
// takes volumes from stage to stage (stages, in stage.go), and back. [Observer] reads
// how migrations are, and what still needs the bridge.
//
// A volume is unstructured here, next to its type: the replacement keeps the fields that
// the old one has, also those that are newer than this program, and the old one can be
// put back with all its fields.
package migrate
