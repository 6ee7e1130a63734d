package install

import (
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

func (in *installer) did(format string, args ...any) { add(&in.report.Steps, "", format, args) }

func (in *installer) warn(format string, args ...any) {
	add(&in.report.Warnings, Warning, format, args)
}

func add(lines *[]string, kind, format string, args []any) {
	*lines = append(*lines, kind+fmt.Sprintf(format, args...))
}

// capabilities returns the required answer of the installed driver. A vendor's program may
// answer any.
func (in *installer) capabilities() *flex.Capabilities {
	if in.Config == nil {
		return nil
	}
	return &in.Config.Capabilities
}
