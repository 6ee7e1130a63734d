package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxNamed is how many of a list an error names.
const maxNamed = 10

func (in *installer) uninstall(context.Context) error {
	if err := in.recoverStage(); err != nil {
		return fmt.Errorf("clean up after an installer that was killed: %w", err)
	}
	exists, err := checkDriverDir(in.dir)
	if err != nil {
		return err
	}
	if !exists {
		in.did("%s is not there: nothing to do", in.dir.path)
		return nil
	}
	if err := in.checkMounts(); err != nil {
		return err
	}
	foreign, err := in.foreign()
	if err != nil {
		return err
	}
	if len(foreign) > 0 && !in.Force {
		return fmt.Errorf("%s has %s in it, not put there by this installer: look at them and move them away, or force it", in.dir.path, list(foreign))
	}
	// While the driver is still there: their removal makes the kubelet run init.
	for _, path := range foreign {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		in.done("remove", path)
		in.did("removed %s", path)
	}
	if err := in.removeDir(in.dir); err != nil {
		return err
	}
	in.report.Changed = true
	in.did("removed configuration, executable and %s: the kubelet forgets the driver", in.dir.path)
	return in.sync(in.pluginDir)
}

// checkMounts refuses to take away a driver that is needed to unmount.
func (in *installer) checkMounts() error {
	points, err := mountPoints(in.Mountinfo)
	if err != nil {
		return err
	}
	var inUse, inside []string
	for _, p := range points {
		if isVolumeOf(in.Driver, p) {
			inUse = append(inUse, p)
		}
		if strings.HasPrefix(p, in.dir.path+"/") {
			inside = append(inside, p)
		}
	}
	if len(inside) > 0 {
		return fmt.Errorf("something is mounted in the driver's own directory, at %s: unmount it first", list(inside))
	}
	if len(inUse) == 0 {
		return nil
	}
	if !in.Force {
		return fmt.Errorf("%d volumes of it are mounted, at %s: end the pods that use them first (with the driver gone the kubelet could not unmount them, and the pods would stay Terminating), or force it", len(inUse), list(inUse))
	}
	in.warn("removed the driver although %d volumes of it are mounted, at %s: unmount them by hand", len(inUse), list(inUse))
	return nil
}

// foreign returns what in the driver's directory is not ours.
func (in *installer) foreign() ([]string, error) {
	entries, err := os.ReadDir(in.dir.path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if path := filepath.Join(in.dir.path, e.Name()); !in.dir.owns(path) {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// removeDir deletes d in place, the executable and the directory last: a kubelet
// that starts in between finds a driver that works, or none, except in the one
// instant when the directory is empty. The removal of the executable is what
// makes a running kubelet forget the driver (probe.go, handleWatchEvent); that of
// the directory says the same once more.
func (in *installer) removeDir(d driverDir) error {
	_, exists, err := lstat(d.path)
	if err != nil || !exists {
		return err
	}
	for _, path := range append(d.dotFiles(), d.executable(current)) {
		if err := in.remove(path); err != nil {
			return err
		}
	}
	err = in.rmdir(d.path)
	if errors.Is(err, fs.ErrExist) { // what rmdir says of a directory with files
		return fmt.Errorf("%w: somebody put files there meanwhile; delete it by hand, a driver directory without driver makes the kubelet log errors", err)
	}
	return err
}

// list names a few.
func list(items []string) string {
	if len(items) <= maxNamed {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:maxNamed], ", "), len(items)-maxNamed)
}
