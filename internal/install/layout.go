package install

import (
	"path/filepath"
	"slices"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// generation is the suffix of a version's files. All but the current ones are dot-files,
// which the kubelet's prober ignores.
type generation string

const (
	current  generation = ""
	next     generation = ".new"  // being made ready, in the stage
	saved    generation = ".old"  // an update is under way, or was killed
	previous generation = ".prev" // an older installer kept it
)

// driverDir is a directory with a driver: the kubelet's, or the stage.
type driverDir struct{ path, name string }

func liveDir(pluginDir string, driver driverconfig.DriverName) driverDir {
	return driverDir{path: filepath.Join(pluginDir, driver.DirName()), name: driver.Name}
}

// stageDir is in the plugin directory, because rename needs the same mount.
func stageDir(pluginDir string, driver driverconfig.DriverName) driverDir {
	return driverDir{path: filepath.Join(pluginDir, "."+driver.DirName()+string(next)), name: driver.Name}
}

// executable returns the kubelet's path of the driver for the current version. The other
// names do not depend on the driver's, so that they cannot be those of its configuration.
func (d driverDir) executable(g generation) string {
	if g == current {
		return filepath.Join(d.path, d.name)
	}
	return filepath.Join(d.path, ".executable"+string(g))
}

func (d driverDir) config(g generation) string {
	return filepath.Join(d.path, driverconfig.FileName+string(g))
}

// record returns the path of the sums of the vendor's programs that Install put there.
func (d driverDir) record() string { return filepath.Join(d.path, ".installed") }

// leftovers returns the paths of what installers leave if they are killed, or left in
// older releases; that of the saved executable before that of its configuration.
func (d driverDir) leftovers() []string {
	return []string{
		d.executable(next),
		d.executable(saved), d.config(saved),
		d.executable(previous), d.config(previous),
	}
}

// dotFiles returns the paths of our files that belong to a version, but the executable,
// the configuration last.
func (d driverDir) dotFiles() []string { return append(d.leftovers(), d.config(current)) }

// owns reports whether path is one of our files.
func (d driverDir) owns(path string) bool {
	return path == d.executable(current) || path == d.record() || slices.Contains(d.dotFiles(), path)
}
