package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/statedir"
)

// maxNamed is how many of a list an error names.
const maxNamed = 10

// A removal is what an uninstallation finds.
type removal struct {
	exists bool      // the driver's directory
	after  successor // what it leaves in the driver's place
	// notes in the directory are the driver's own, others are not ours.
	notes, others []string
}

func (in *installer) uninstall(context.Context) error {
	if err := in.recoverStage(); err != nil {
		return fmt.Errorf("clean up after an installer that was killed: %w", err)
	}
	if err := in.remove(in.original() + string(next)); err != nil {
		return err
	}
	r, err := in.plan()
	if err != nil {
		return err
	}
	switch r.after {
	case kept:
		err = in.putBack(r.exists)
	case theirs:
		in.did("left %s, which is not flexdriver", in.dir.executable(current))
	case none:
		if !r.exists {
			in.did("%s is not there: nothing to do", in.dir.path)
			return in.tellOriginal()
		}
		return in.erase(slices.Concat(r.others, r.notes))
	}
	if err != nil {
		return err
	}
	return in.leave(r.notes)
}

func (in *installer) removable(context.Context) error {
	_, err := in.plan()
	return err
}

// plan refuses to remove a driver that is needed.
func (in *installer) plan() (r removal, err error) {
	if r.exists, err = checkDriverDir(in.dir); err != nil {
		return r, err
	}
	if r.after, err = in.successor(); err != nil || (!r.exists && r.after == none) {
		return r, err
	}
	if err := in.checkMounts(r.after); err != nil || !r.exists {
		return r, err
	}
	if err := in.findOthers(&r); err != nil {
		return r, err
	}
	return r, in.checkFiles(r)
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
	if err := in.sync(in.pluginDir); err != nil {
		return err
	}
	return in.tellOriginal()
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

// findOthers finds what in the driver's directory was not put there by an installer. A
// successor keeps what is not ours.
func (in *installer) findOthers(r *removal) error {
	entries, err := os.ReadDir(in.dir.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(in.dir.path, e.Name())
		switch {
		case in.dir.owns(path):
		case statedir.IsAttachLock(path):
			r.notes = append(r.notes, path)
		case r.after == none:
			r.others = append(r.others, path)
		}
	}
	return nil
}

// checkFiles refuses to delete what is needed, or not ours.
func (in *installer) checkFiles(r removal) error {
	var attached []string
	for _, path := range r.notes {
		if statedir.AttachLockHeld(path) {
			attached = append(attached, path)
		}
	}
	switch {
	case in.Force:
		return nil
	case len(attached) > 0:
		return fmt.Errorf("volumes of it are attached (%d, noted in %s): end the pods that use them first (without the driver they could not be detached), or use --force", len(attached), list(attached))
	case len(r.others) > 0:
		return fmt.Errorf("%s has %s in it, not put there by this installer; check and move them, or use --force", in.dir.path, list(r.others))
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
