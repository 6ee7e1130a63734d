// Package retirement is the old name of internal/cordon.
package retirement

import "github.com/flex2csi/flex2csi/internal/cordon"

// Get is [cordon.Get].
func Get(stateDir string) (*cordon.Cordon, error) { return cordon.Get(stateDir) }
