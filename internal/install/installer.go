package install

import (
	"errors"
	"fmt"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// installer is one run of Install or Uninstall.
type installer struct {
	Options
	files
	report    Report
	pluginDir string
	dir       driverDir // the driver's directory
	stage     driverDir // where a first installation is built
	// recovered: an earlier run was killed. The kubelet may have seen an intermediate
	// state, so nothing counts as unchanged.
	recovered bool
}

func (in *installer) did(format string, args ...any) {
	in.report.Steps = append(in.report.Steps, fmt.Sprintf(format, args...))
}

func (in *installer) warn(format string, args ...any) {
	in.report.Warnings = append(in.report.Warnings, fmt.Sprintf(format, args...))
}

// undone returns the error of a change that failed, and of its reversal.
func (in *installer) undone(err error, what string, undoErr error) error {
	if undoErr != nil {
		return errors.Join(err, fmt.Errorf("could not go back to the state before: %w", undoErr))
	}
	in.report.Changed = false
	in.did("%s", what)
	return fmt.Errorf("%w (%s)", err, what)
}

// capabilities returns the required answer of the installed driver. A vendor's program may
// answer any.
func (in *installer) capabilities() *flex.Capabilities {
	if in.Config == nil {
		return nil
	}
	return &in.Config.Capabilities
}
