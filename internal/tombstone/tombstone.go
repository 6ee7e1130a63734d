// Package tombstone is the old name of internal/pendingunmount.
package tombstone

import "github.com/flex2csi/flex2csi/internal/pendingunmount"

// DefaultStateDir is that of [pendingunmount].
const DefaultStateDir = pendingunmount.DefaultStateDir

type (
	// Dir is that of [pendingunmount].
	Dir = pendingunmount.Dir
	// Tombstone is [pendingunmount.Unmount].
	Tombstone = pendingunmount.Unmount
)

// Write is [pendingunmount.Write].
func Write(stateDir string, u Tombstone) error { return pendingunmount.Write(stateDir, u) }
