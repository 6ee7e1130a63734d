// Package tombstone is the old name of internal/pendingunmount.
package tombstone

import "github.com/flex2csi/flex2csi/internal/pendingunmount"

const DefaultStateDir = pendingunmount.DefaultStateDir

type (
	Dir       = pendingunmount.Dir
	Tombstone = pendingunmount.Unmount
)

func Write(stateDir string, u Tombstone) error { return pendingunmount.Write(stateDir, u) }
