package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/hostfile"
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

func run(ctx context.Context, o Options, verb string, do func(*installer, context.Context) error) (Report, error) {
	in := &installer{Options: o}
	in.setDefaults()
	in.files.after = in.afterStep
	unlock, err := in.lock(ctx)
	if err == nil {
		err = do(in, ctx)
		unlock()
	}
	if err != nil {
		err = fmt.Errorf("%s driver %s: %w", verb, o.Driver, err)
	}
	return in.report, err
}

// lock checks and locks the plugin directory: installers work one after the other. It locks
// the directory itself, as a lock file would be one more file to leave behind.
func (in *installer) lock(ctx context.Context) (unlock func(), err error) {
	if err := in.validate(); err != nil {
		return nil, err
	}
	if in.pluginDir, err = resolvePluginDir(in.PluginDir); err != nil {
		return nil, err
	}
	if err := checkWritable(in.pluginDir, ""); err != nil {
		return nil, err
	}
	in.dir, in.stage = liveDir(in.pluginDir, in.Driver), stageDir(in.pluginDir, in.Driver)
	in.report.Dir = in.dir.path
	if in.pluginDir != filepath.Clean(in.PluginDir) {
		in.did("followed %s to %s", in.PluginDir, in.pluginDir)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, in.LockTimeout, errors.New("another installer is at work there (lslocks shows which)"))
	defer cancel()
	l, err := hostfile.WaitDirLock(ctx, in.pluginDir)
	if err != nil {
		return nil, fmt.Errorf("lock plugin directory %s: %w", in.pluginDir, err)
	}
	return func() { l.Close() }, nil
}

func (in *installer) did(format string, args ...any) { add(&in.report.Steps, "", format, args) }

func (in *installer) warn(format string, args ...any) {
	add(&in.report.Warnings, Warning, format, args)
}

func add(lines *[]string, kind, format string, args []any) {
	*lines = append(*lines, fmt.Sprint(kind, fmt.Sprintf(format, args...)))
}

// capabilities returns the required answer of the installed driver. A vendor's program may
// answer any.
func (in *installer) capabilities() *flex.Capabilities {
	if in.Config == nil {
		return nil
	}
	return &in.Config.Capabilities
}
