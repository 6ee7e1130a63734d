package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/filelock"
)

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
	l, err := filelock.WaitDir(ctx, in.pluginDir)
	if err != nil {
		return nil, fmt.Errorf("lock plugin directory %s: %w", in.pluginDir, err)
	}
	return func() { l.Close() }, nil
}
