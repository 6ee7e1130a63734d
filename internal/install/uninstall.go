package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/attachlock"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
)

// maxNamed is how many of a list an error names.
const maxNamed = 10

func (in *installer) uninstall(context.Context) error {
	if err := in.recoverStage(); err != nil {
		return fmt.Errorf("clean up after an installer that was killed: %w", err)
	}
	if err := in.remove(in.original() + string(next)); err != nil {
		return err
	}
	exists, err := checkDriverDir(in.dir)
	if err != nil {
		return err
	}
	after, err := in.successor()
	if err != nil {
		return err
	}
	if !exists && after == none {
		in.did("%s is not there: nothing to do", in.dir.path)
		return in.tellOriginal()
	}
	notes, foreign, err := in.needless(exists, after)
	if err != nil {
		return err
	}
	switch after {
	case kept:
		if err := in.putBack(exists); err != nil {
			return fmt.Errorf("put %s back: %w", in.original(), err)
		}
	case theirs:
		in.did("left %s, which is not flexdriver", in.dir.executable(current))
	case none:
		return in.erase(slices.Concat(foreign, notes))
	}
	return in.leave(notes)
}

// erase removes the driver and its directory, and first these files: their removal makes
// the kubelet run init.
func (in *installer) erase(others []string) error {
	for _, path := range others {
		if err := in.removeTree(path); err != nil {
			return err
		}
		in.did("removed %s", path)
	}
	if err := in.removeDir(in.dir); err != nil {
		return err
	}
	in.report.Changed = true
	in.did("removed %s with its files: the kubelet forgets the driver", in.dir.path)
	return errors.Join(in.sync(in.pluginDir), in.tellOriginal())
}

func (in *installer) removable(context.Context) error {
	exists, err := checkDriverDir(in.dir)
	if err != nil {
		return err
	}
	after, err := in.successor()
	if err != nil || !exists && after == none {
		return err
	}
	_, _, err = in.needless(exists, after)
	return err
}

// needless refuses to remove a driver that is needed. It returns what else is in the
// directory, as otherFiles does; the successor keeps what is not ours.
func (in *installer) needless(exists bool, after successor) (notes, foreign []string, err error) {
	if err := in.checkMounts(after); err != nil || !exists {
		return nil, nil, err
	}
	if notes, foreign, err = in.otherFiles(); err != nil {
		return nil, nil, err
	}
	if after != none {
		foreign = nil
	}
	return notes, foreign, in.checkFiles(notes, foreign)
}

// checkMounts refuses to remove a driver that is needed to unmount. A successor unmounts
// what it has mounted itself: then only volumes with a target path of ours count.
func (in *installer) checkMounts(after successor) error {
	points, err := mountPoints(in.Mountinfo)
	if err != nil {
		return err
	}
	var inUse, inside []string
	for _, p := range points {
		if isVolumeOf(in.Driver, p) && (after == none || isTarget(points, p)) {
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

// isTarget reports whether our target path of a volume's directory is a mount point.
func isTarget(points []string, dir string) bool {
	target, err := kubeletdir.TargetPath(dir)
	return err == nil && slices.Contains(points, target)
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
