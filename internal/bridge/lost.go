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
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Records may be lost, one or all. The pods' directories on the node still name the
// driver and the PersistentVolume, but not the volume handle. So their targets are added
// to a record when a call has the handle, and so is what is mounted at the staging path. Then
// the volume stays staged and attached when the pod of that call ends.

// findLost notes what pods have and no record. It looks for target paths: the kubelet removes
// its own directory when mount has failed. Then any driver may have published there.
func (b *Bridge) findLost() {
	b.registry.lost = map[persistentVolume][]string{}
	recorded := map[string]bool{}
	for _, r := range b.Records() {
		for _, t := range r.Targets {
			recorded[t.TargetPath] = true
		}
	}
	at := map[string][]string{}
	for _, name := range b.Drivers.Names() {
		for dir, t := range b.targetsAt(b.publishedDirs(name, "*")) {
			if !recorded[t.TargetPath] {
				at[t.TargetPath] = append(at[t.TargetPath], dir)
			}
		}
	}
	for _, dirs := range at {
		if i := slices.IndexFunc(dirs, b.node().there); i >= 0 {
			dirs = dirs[i : i+1]
		}
		for _, dir := range dirs {
			place, _ := kubeletdir.Parse(dir) // it is a pod's
			volumelog.OfDir(dir).Logger(b.log()).Warn("a pod has a volume without a record; the next mount of this volume on this node records it again", "flexDriver", place.Driver)
			pv := persistentVolume{place.Driver, place.Volume}
			b.registry.lost[pv] = append(b.registry.lost[pv], dir)
		}
	}
}

// adopt adds what is left of a lost record to a new one, before anything is begun for it. The
// targets stay lost until that is saved (show): a save may fail, and a volume without a saved
// record is forgotten.
func (b *Bridge) adopt(v *volume) {
	r, staged := v.record, ""
	if at := b.node().stagingPath(v.key); v.saved.Load() == nil && !b.node().there(b.node().volDataPath(v.key)) && b.node().maybeStaged(at) {
		staged = at
	}
	lifecycle.TakeUp(r, staged, b.targetsAt(b.registry.lostDirs(persistentVolume{r.FlexDriver, r.Name})))
	lifecycle.Recognize(r, b.node().mounted)
}

// unmountLostDevice is unmountdevice of a volume without a record. With its Success the
// control plane detaches the volume, so nothing of it may be staged then.
func (on callouts) unmountLostDevice(ctx context.Context, c *flex.Call) error {
	b := on.bridge
	d, v, err := on.findUnrecorded(ctx, "unmount device "+c.Dir, filepath.Base(c.Dir))
	switch {
	case err != nil:
		return err
	case v == nil:
		b.registry.noteMarker(c.Dir, true)
		return b.Mounts.Unmount(ctx, c.Dir)
	}
	return b.inTurn(ctx, v.Key(), operationOf(c), func(found *volume) error {
		if found.record.Idle() {
			lifecycle.Recall(found.record, v, c.Dir)
			b.doubt(found.record)
		}
		return b.execute(found, d, lifecycle.Wanted{Goal: lifecycle.UnmountDevice, Dir: c.Dir})
	})
}

// detachLost is detach of a volume without a record: it may have been detached before.
func (on callouts) detachLost(ctx context.Context, name string) error {
	_, v, err := on.findUnrecorded(ctx, "detach volume "+name, name)
	if err == nil && v != nil {
		err = flex.Errorf(flex.CodeFailedPrecondition, "detach volume %s: no record has it, and it is still in use on node %s; it can be detached after its last pod", name, on.bridge.NodeName)
	}
	return err
}

// findUnrecorded returns a volume without a record of which something may be on this node,
// and its driver; nil: nothing is. Its PersistentVolume says where it would be. If that is
// not known, anything that no record accounts for may be this volume: then it is an error.
func (on callouts) findUnrecorded(ctx context.Context, doing, name string) (*FlexDriver, *csivol.Volume, error) {
	b, pv := on.bridge, persistentVolume{on.driver.Name, name}
	unknown, err := b.unrecorded(pv)
	if err == nil && len(unknown) == 0 {
		return nil, nil, nil
	}
	d, v := b.find(ctx, pv)
	switch {
	case v == nil:
		return nil, nil, errLostStage(doing, name, unknown, err)
	case err == nil && len(b.registry.lostDirs(pv)) == 0 && !slices.Contains(unknown, b.node().stagingPath(v.Key())):
		return nil, nil, nil
	}
	return d, v, nil
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

func errLostStage(doing, name string, unknown []string, err error) error {
	if err == nil {
		err = fmt.Errorf("it may be what is mounted at %s", strings.Join(unknown[:min(3, len(unknown))], ", "))
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "%s: no record has PersistentVolume %s, which may still be staged on this node: %w; start a pod with it on this node, so that it is recorded again, or unmount what no pod needs", doing, name, err)
}

// discover returns the targets that this node has of a volume.
func (b *Bridge) discover(r *volstate.Record) map[string]*volstate.Target {
	found := b.pendingTargets(r)
	maps.Copy(found, b.targetsAt(b.publishedDirs(r.FlexDriver, r.Name)))
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
		found[dir] = &volstate.Target{TargetPath: targetPath, Publish: volstate.Doing, Since: time.Now()}
	}
	return found
}

// publishedDirs returns the pods' directories of a driver's volumes for which something may be
// published. The directory itself does not count: the kubelet removes it when mount has
// failed, and makes it for the next try, which may be at any time. A name that is not a
// PersistentVolume's says nothing: each pod may have another volume by it.
func (b *Bridge) publishedDirs(flexDriver, volume string) (dirs []string) {
	if d := b.Drivers.First(flexDriver); d == nil || d.Inline {
		return nil
	}
	pods, volumes := filepath.Join(b.KubeletDir, "pods"), kubeletdir.PodDir(flexDriver)
	targets, err := kubeletdir.TargetPath(pods + "/*" + volumes + volume)
	if err != nil {
		return nil // a name that is no path: of the kubelet's directory it cannot be
	}
	guards, _ := filepath.Glob(kubeletdir.Guard(targets)) // it is a pattern
	for _, guard := range guards {
		if strings.HasPrefix(filepath.Base(guard), ".") {
			continue // of a spare target; no PersistentVolume has such a name
		}
		pod, _, _ := strings.Cut(strings.TrimPrefix(guard, pods+"/"), "/")
		dirs = append(dirs, pods+"/"+pod+volumes+filepath.Base(guard))
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

// targetAt returns what the node shows of a target for dir; nil if there is
// nothing. The mount itself is not touched: it may be dead.
func (b *Bridge) targetAt(dir string) *volstate.Target {
	targetPath, err := kubeletdir.TargetPath(dir)
	if err != nil || !b.node().there(filepath.Dir(targetPath)) {
		return nil
	}
	return &volstate.Target{TargetPath: targetPath, Publish: volstate.Doing, Since: time.Now()}
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
