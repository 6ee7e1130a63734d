package bridge

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Records may be lost, one or all. The pods' directories on the node still name the
// driver and the PersistentVolume, but not the volume handle. So their targets are added
// to a record when a call has the handle. Then the volume stays staged and attached when
// the pod of that call ends.

// findLost notes what pods have and no record.
func (b *Bridge) findLost() {
	b.registry.lost = map[persistentVolume][]string{}
	for _, name := range b.Drivers.Names() {
		for _, dir := range b.podDirs(name, "*") {
			if _, known := b.registry.byDirectory(dir); known || b.targetAt(dir) == nil {
				continue
			}
			b.log().Warn("a pod has a volume without a record; the next mount of this volume on this node records it again", "dir", dir, "driver", name)
			pv := persistentVolume{name, filepath.Base(dir)}
			b.registry.lost[pv] = append(b.registry.lost[pv], dir)
		}
	}
}

// adopt adds the targets of a lost record to a new record. They stay lost until that
// is saved (show): a save may fail, and a volume without a saved record is forgotten.
func (b *Bridge) adopt(r *volstate.Record) {
	if dirs := b.registry.lostDirs(persistentVolume{r.FlexDriver, r.Name}); len(dirs) > 0 {
		lifecycle.TakeUp(r, b.targetsAt(dirs))
		lifecycle.Recognize(r, b.node().mounted)
	}
}

// unmountLostDevice is unmountdevice of a volume without a record. With its Success the
// control plane detaches the volume, so nothing of it may be staged then. Its
// PersistentVolume says where it would be. If that is not known, anything that no record
// accounts for may be this volume.
func (on callouts) unmountLostDevice(ctx context.Context, c *flex.Call) error {
	b, pv := on.bridge, persistentVolume{on.driver.Name, filepath.Base(c.Dir)}
	unknown, err := b.unrecorded(pv)
	if err != nil || len(unknown) > 0 {
		d, v := b.find(ctx, pv)
		switch {
		case v == nil:
			return errLostStage(c.Dir, pv.name, unknown, err)
		case err != nil, len(b.registry.lostDirs(pv)) > 0, slices.Contains(unknown, b.node().stagingPath(v.Key())):
			return b.inTurn(ctx, v.Key(), operationOf(c), func(found *volume) error {
				if found.record.Idle() {
					lifecycle.Recall(found.record, v, c.Dir)
					b.doubt(found.record)
				}
				return b.execute(found, d, lifecycle.Wanted{Goal: lifecycle.UnmountDevice, Dir: c.Dir})
			})
		}
	}
	b.registry.noteMarker(c.Dir, true)
	return b.Mounts.Unmount(ctx, c.Dir)
}

// unrecorded returns the pods' directories of a volume and all staging paths of its
// driver that no record accounts for.
func (b *Bridge) unrecorded(pv persistentVolume) ([]string, error) {
	recorded := map[string]bool{}
	for _, r := range b.Records() {
		recorded[r.StagingPath] = true
	}
	unknown := b.registry.lostDirs(pv)
	for _, d := range b.Drivers.All {
		if d.Name != pv.flexDriver {
			continue
		}
		staged, err := b.node().staged(d)
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, slices.DeleteFunc(staged, func(at string) bool { return recorded[at] })...)
	}
	return unknown, nil
}

// find returns the volume of a PersistentVolume, and its driver; nil: it is not known.
func (b *Bridge) find(ctx context.Context, pv persistentVolume) (*FlexDriver, *csivol.Volume) {
	ctx, cancel := context.WithTimeout(ctx, pvStateWait)
	defer cancel()
	for _, d := range b.Drivers.All {
		if d.Name != pv.flexDriver || d.Read == nil {
			continue
		}
		if v, err := d.Read(ctx, pv.name); err == nil && v.Driver == d.CSIDriver {
			return d, v
		}
	}
	return nil, nil
}

func errLostStage(dir, name string, unknown []string, err error) error {
	if err == nil {
		err = fmt.Errorf("it may be what is mounted at %s", strings.Join(unknown[:min(3, len(unknown))], ", "))
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "unmount device %s: no record has PersistentVolume %s, which may still be staged on this node: %w; start a pod with it on this node, so that it is recorded again, or unmount what no pod needs", dir, name, err)
}

// discover returns the targets that this node has of a volume.
func (b *Bridge) discover(r *volstate.Record) map[string]*volstate.Target {
	found := b.pendingTargets(r)
	maps.Copy(found, b.targetsAt(append(b.podDirs(r.FlexDriver, r.Name), b.publishedDirs(r)...)))
	return found
}

// pendingTargets returns the targets of a volume that flexdriver has unmounted: nothing
// of them is left on the node, and the CSI driver has not heard of it.
func (b *Bridge) pendingTargets(r *volstate.Record) map[string]*volstate.Target {
	found := map[string]*volstate.Target{}
	d := b.Drivers.First(r.FlexDriver)
	if d == nil || d.Inline || b.PendingUnmounts == nil {
		return found
	}
	for _, dir := range b.PendingUnmounts.Dirs() {
		place, err := kubeletdir.Parse(dir)
		if err != nil || place.PodUID == "" || place.Driver != r.FlexDriver || place.Volume != r.Name {
			continue
		}
		if _, known := b.registry.byDirectory(dir); known {
			continue
		}
		targetPath, _ := kubeletdir.TargetPath(dir) // it is a pod's
		found[dir] = &volstate.Target{TargetPath: targetPath, Publish: volstate.Doing, Since: time.Now().UTC()}
	}
	return found
}

// publishedDirs returns the pods' directories of a volume for which something may be
// published. The directory itself does not count: the kubelet removes it when mount has
// failed, and makes it for the next try, which may be at any time.
func (b *Bridge) publishedDirs(r *volstate.Record) (dirs []string) {
	if d := b.Drivers.First(r.FlexDriver); d == nil || d.Inline {
		return nil
	}
	pods, err := filepath.Glob(filepath.Join(b.KubeletDir, "pods/*"))
	if err != nil {
		return nil // a name that is no pattern: of the kubelet's directory it cannot be
	}
	for _, pod := range pods {
		dir := filepath.Join(pod, "volumes", strings.Replace(r.FlexDriver, "/", "~", 1), r.Name)
		if targetPath, err := kubeletdir.TargetPath(dir); err == nil && b.node().there(filepath.Dir(targetPath)) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// targetsAt returns what the node shows of targets that no record has.
func (b *Bridge) targetsAt(dirs []string) map[string]*volstate.Target {
	found := map[string]*volstate.Target{}
	for _, dir := range dirs {
		if _, known := b.registry.byDirectory(dir); known {
			continue
		}
		if t := b.targetAt(dir); t != nil {
			found[dir] = t
		}
	}
	return found
}

// podDirs returns where pods have volumes of a driver. A name that is not a
// PersistentVolume's says nothing: each pod may have another volume by it.
func (b *Bridge) podDirs(flexDriver, volume string) []string {
	if d := b.Drivers.First(flexDriver); d == nil || d.Inline {
		return nil
	}
	dirs, err := filepath.Glob(filepath.Join(b.KubeletDir, "pods/*/volumes", strings.Replace(flexDriver, "/", "~", 1), volume))
	if err != nil {
		return nil // a name that is no pattern: of a pod directory it cannot be
	}
	return dirs
}

// targetAt returns what the node shows of a target for dir; nil if there is
// nothing. The mount itself is not touched: it may be dead.
func (b *Bridge) targetAt(dir string) *volstate.Target {
	targetPath, err := kubeletdir.TargetPath(dir)
	if err != nil || !b.node().there(filepath.Dir(targetPath)) {
		return nil
	}
	return &volstate.Target{TargetPath: targetPath, Publish: volstate.Doing, Since: time.Now().UTC()}
}

// tidy unmounts what no record knows: never mounted, or the record was lost.
func (b *Bridge) tidy(ctx context.Context, dir string) error {
	if err := b.Mounts.Unmount(ctx, dir); err != nil {
		return err
	}
	// What is not a pod's directory has no target path.
	if targetPath, err := kubeletdir.TargetPath(dir); err == nil {
		if err := b.Mounts.RemoveTarget(ctx, targetPath); err != nil {
			return err
		}
	}
	b.registry.forgetLost(dir)
	return b.forgetPendingUnmount(dir)
}
