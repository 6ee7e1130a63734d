package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/attachlock"
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
	notes, foreign, err := in.needless()
	if err != nil {
		return err
	}
	// While the driver is still there: their removal makes the kubelet run init.
	for _, path := range slices.Concat(foreign, notes) {
		if err := in.removeAll(path); err != nil {
			return err
		}
		in.did("removed %s", path)
	}
	if err := in.removeDir(in.dir); err != nil {
		return err
	}
	in.report.Changed = true
	in.did("removed configuration, executable and %s: the kubelet forgets the driver", in.dir.path)
	return in.sync(in.pluginDir)
}

func (in *installer) removable(context.Context) error {
	exists, err := checkDriverDir(in.dir)
	if err != nil || !exists {
		return err
	}
	_, _, err = in.needless()
	return err
}

// needless refuses to remove a driver that is needed. It returns what else is in the
// directory, as otherFiles does.
func (in *installer) needless() (notes, foreign []string, err error) {
	if err := in.checkMounts(); err != nil {
		return nil, nil, err
	}
	if notes, foreign, err = in.otherFiles(); err != nil {
		return nil, nil, err
	}
	return notes, foreign, in.checkFiles(notes, foreign)
}

// checkMounts refuses to remove a driver that is needed to unmount.
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
		return fmt.Errorf("volumes of it are mounted (%d: %s): end the pods that use them first (without the driver the kubelet could not unmount them, and the pods would stay Terminating), or use --force", len(inUse), list(inUse))
	}
	in.warn("removed the driver although volumes of it are mounted (%d: %s): unmount them by hand", len(inUse), list(inUse))
	return nil
}

// otherFiles returns what in the driver's directory was not put there by an
// installer: the driver's own notes, and what is of others.
func (in *installer) otherFiles() (notes, foreign []string, err error) {
	entries, err := os.ReadDir(in.dir.path)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(in.dir.path, e.Name())
		switch {
		case in.dir.owns(path):
		case attachlock.IsFile(path):
			notes = append(notes, path)
		default:
			foreign = append(foreign, path)
		}
	}
	return notes, foreign, nil
}

// checkFiles refuses to delete what is needed, or not ours.
func (in *installer) checkFiles(notes, foreign []string) error {
	var attached []string
	for _, path := range notes {
		if attachlock.Held(path) {
			attached = append(attached, path)
		}
	}
	switch {
	case in.Force:
		return nil
	case len(attached) > 0:
		return fmt.Errorf("volumes of it are attached (%d, noted in %s): end the pods that use them first (without the driver they could not be detached), or use --force", len(attached), list(attached))
	case len(foreign) > 0:
		return fmt.Errorf("%s has %s in it, not put there by this installer; check and move them, or use --force", in.dir.path, list(foreign))
	}
	return nil
}

// list names a few.
func list(items []string) string {
	if len(items) <= maxNamed {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:maxNamed], ", "), len(items)-maxNamed)
}
