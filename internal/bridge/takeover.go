package bridge

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A PersistentVolume may become a CSI one under its pods, and a FlexVolume again
// (flex2csi migrate). Then the kubelet's own CSI plugin has the volume beside us,
// and whoever lets go first leaves it to the other. See
// docs/adr/0015-replace-in-place.md.

// volDataFile is what the kubelet's CSI plugin keeps beside its staging path, for
// drivers that stage (pkg/volume/csi/csi_attacher.go, MountDevice), and in a pod's
// directory for all (csi_mounter.go, SetUpAt; Kubernetes v1.37.1).
const volDataFile = "vol_data.json"

func (b *Bridge) volDataPath(key csivol.Key) string {
	return filepath.Join(filepath.Dir(b.kubeletStagingPath(key)), volDataFile)
}

// KubeletHas reports whether the kubelet's CSI plugin has the volume of a record
// for a pod, mounted, or without one for whichever. What cannot be looked at it
// has not: who asks waits for it.
func (b *Bridge) KubeletHas(r *volstate.Record, pod string) bool {
	if pod == "" {
		return b.there(b.volDataPath(r.Key()))
	}
	return slices.ContainsFunc(b.csiDirs(r.Key(), pod), func(dir string) bool { return b.mounted(csiMount(dir)) })
}

// KubeletTook reports whether the kubelet's CSI plugin has the volume of a record
// beside us, for whichever of its pods.
func (b *Bridge) KubeletTook(r *volstate.Record) bool {
	if b.KubeletHas(r, "") {
		return true
	}
	for dir := range r.Targets {
		if place, err := kubeletdir.Parse(dir); err == nil && b.KubeletHas(r, place.PodUID) {
			return true
		}
	}
	return false
}

// An owner is who ends a volume on this node when no FlexVolume is left of it.
type owner int

const (
	// ours: nobody else has it.
	ours owner = iota
	// unclear: the kubelet's CSI plugin has the volume staged, or is about to, and
	// has it for no pod: it begins, it is about to end, or it has failed and will
	// not come back.
	unclear
	// kubelets: its CSI plugin has the volume for a pod.
	kubelets
)

// owner looks who has the volume beside us. next says that a pod is about to have
// it as a CSI volume.
func (b *Bridge) owner(v *volume, next bool) (owner, error) {
	if b.csiPods(v.key) {
		v.log.Info("the kubelet's CSI plugin has the volume; it is neither unstaged nor detached here")
		return kubelets, nil
	}
	staged, err := b.kubeletStages(v.key)
	if staged || next && err == nil {
		return unclear, nil
	}
	return ours, err
}

// kubeletStages reports whether the kubelet's CSI plugin has staged the volume, as
// its file says. It leaves that where its NodeStageVolume has failed and the volume
// is staged by us.
func (b *Bridge) kubeletStages(key csivol.Key) (bool, error) {
	staged, err := b.dirs().Exists(b.volDataPath(key))
	if err != nil {
		return false, flex.Errorf(flex.CodeInternal, "see whether the kubelet has taken the volume over: %w", err)
	}
	return staged, nil
}

// csiPods reports whether the kubelet's CSI plugin has the volume for any pod, or is
// about to: it writes its file before NodePublishVolume. An old one without a mount
// is what it has forgotten. What cannot be looked at it has: others then end nothing.
func (b *Bridge) csiPods(key csivol.Key) bool {
	return slices.ContainsFunc(b.csiDirs(key, "*"), func(dir string) bool {
		if mounted, err := b.Mounts.Mounted(csiMount(dir)); err != nil || mounted {
			return true
		}
		info, err := os.Stat(filepath.Join(dir, volDataFile))
		return err == nil && time.Since(info.ModTime()) < b.grace()
	})
}

// csiDirs returns where the kubelet's CSI plugin has, or had, the volume for a pod,
// which may be *. The name of the PersistentVolume does not matter: several may be
// the same volume.
func (b *Bridge) csiDirs(key csivol.Key, pod string) (dirs []string) {
	files, err := filepath.Glob(filepath.Join(b.KubeletDir, "pods", pod, "volumes/kubernetes.io~csi/*", volDataFile))
	if err != nil {
		return nil // a name that is no pattern: of the kubelet's directory it cannot be
	}
	for _, file := range files {
		var data struct{ DriverName, VolumeHandle string }
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &data) == nil && data.DriverName == key.Driver && data.VolumeHandle == key.Handle {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	return dirs
}

// csiMount is what the kubelet's CSI plugin has published in one of its directories
// (pkg/volume/csi/csi_mounter.go, getTargetPath, Kubernetes v1.37.1).
func csiMount(dir string) string { return filepath.Join(dir, "mount") }

// takenOver reports whether the kubelet's CSI plugin has the volume by now, or
// may have.
func (b *Bridge) takenOver(v *volume) (bool, error) {
	who, err := b.owner(v, false)
	return who != ours, err
}

// fateWait is short: an unmount waits for it, and what is not known does not keep
// it.
const fateWait = 3 * time.Second

// fate is what became of a volume since it was mounted at dir, for a pod or as a
// device.
func (b *Bridge) fate(v *volume, dir string) (f csivol.Fate) {
	place, err := kubeletdir.Parse(dir)
	if err != nil || b.Fate == nil || v.record.Targets[dir] == nil && v.record.Device != dir {
		return csivol.Fate{}
	}
	err = v.rpc(fateWait, func(ctx context.Context) (err error) {
		f, err = b.Fate(ctx, place.Volume, v.key, place.PodUID)
		return err
	})
	if err != nil {
		v.log.Warn("whether the PersistentVolume is still the one that was mounted is not known", "persistentVolume", place.Volume, "error", err)
		return csivol.Fate{}
	}
	return f
}

// mayLetGo is an error where the kubelet wants to unmount what a pod that lives
// has, because the pod's volume is another one by now, or none for the moment: a
// kubelet that was restarted unmounts before it mounts (pkg/kubelet/volumemanager/
// reconciler/reconciler.go, reconcile, Kubernetes v1.37.1). The containers still
// have what was mounted, and must not lose what is below it. Where the kubelet's
// CSI plugin has the same filesystem mounted for the pod by now, they do not, unless
// there is no PersistentVolume: then the kubelet wants neither, and what is mounted
// from here is all that keeps it from unstaging.
func (b *Bridge) mayLetGo(v *volume, dir string, f csivol.Fate) error {
	if f.Replaced == "" || f.Pod == "" {
		return nil
	}
	place, err := kubeletdir.Parse(dir)
	if err != nil {
		return err
	}
	if !f.Gone && b.livesOn(v, dir, place.PodUID) {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s %s, and pod %s, which lives, has the volume from here: it is unmounted when the pod ends", place.Volume, f.Replaced, f.Pod)
}

// livesOn reports whether the kubelet's CSI plugin has for a pod the filesystem that
// is mounted at dir.
func (b *Bridge) livesOn(v *volume, dir, pod string) bool {
	return slices.ContainsFunc(b.csiDirs(v.key, pod), func(csi string) bool {
		same, err := b.Mounts.SameFilesystem(target(v.record.Targets[dir], dir), csiMount(csi))
		return err == nil && same
	})
}

// handOver leaves the volume to the kubelet's CSI plugin and the control plane.
func handOver(r *volstate.Record) {
	unstaged(r)
	r.TakenOver = true
	forgetAttachment(r)
}

// ownerBefore looks who has the volume, before a target goes: what is published keeps
// the kubelet from unstaging, and when it is gone the kubelet may be done in the same
// moment. With the last target the record keeps it, for unmountdevice and for a
// process that goes on with what this one has begun.
func (b *Bridge) ownerBefore(v *volume, t *volstate.Target) (owner, error) {
	who, err := b.owner(v, v.next)
	if err != nil || len(v.record.Targets) > 1 {
		return who, err
	}
	if who == ours && v.record.TakenOver && t.Publish != volstate.Done {
		who = unclear // as was seen when this was begun
	}
	v.record.TakenOver = who != ours && b.shares(v.record)
	return who, nil
}

// leaveTo leaves the volume to whoever else has it, as was seen before anything was
// unmounted, or is seen now. It is not left if there is something to do yet.
func (b *Bridge) leaveTo(v *volume, who owner) (left bool, err error) {
	r := v.record
	if who != kubelets {
		now, err := b.owner(v, v.next)
		if err != nil {
			return false, err
		}
		who = max(who, now)
	}
	switch {
	case who == ours:
		return false, nil
	case !b.shares(r):
		return false, flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and the kubelet's CSI plugin uses it, too; it is unstaged when the pods with its CSI PersistentVolume are gone from this node", v.key, r.StagingPath)
	case who == kubelets:
		handOver(r)
	case r.Stage == volstate.None:
		return false, nil
	case b.ended(r):
		unstaged(r)
		return false, nil
	default:
		v.log.Info("the kubelet's CSI plugin has the volume for no pod, and may be about to; it stays staged until that is clear")
		r.TakenOver = true
	}
	return true, nil
}

// shares reports that what is staged is staged where the kubelet's CSI plugin has it,
// so that one of us ends it for both.
func (b *Bridge) shares(r *volstate.Record) bool {
	return r.Stage == volstate.None || r.StagingPath == b.kubeletStagingPath(r.Key())
}

// ended reports whether the kubelet's CSI plugin has unstaged the volume by now.
func (b *Bridge) ended(r *volstate.Record) bool {
	staged, err := b.kubeletStages(r.Key())
	if err != nil || staged || !r.StageMounted {
		return false
	}
	mounts, err := b.stageMounts(r.StagingPath)
	return err == nil && len(mounts) == 0
}

// unstaged notes that nothing is staged any more, by whoever.
func unstaged(r *volstate.Record) {
	r.TakenOver, r.Stage, r.StagingPath, r.StageDead = false, volstate.None, "", ""
}

// takeBack: what was left to others is wanted here again. Its attachment may be
// about to go with them, and is asked for.
func takeBack(r *volstate.Record) {
	if r.TakenOver && r.Object != "" && r.Attach == volstate.Done {
		r.Attach = volstate.Doing
	}
	r.TakenOver = false
}

// leftUnclear reports that nothing is left of a volume but what may be the
// kubelet's to end.
func leftUnclear(r *volstate.Record) bool {
	return r.TakenOver && r.Stage != volstate.None && len(r.Targets) == 0
}

// decided reports whether it is clear by now who ends such a volume.
func (b *Bridge) decided(r *volstate.Record) bool {
	if b.csiPods(r.Key()) || time.Since(r.Changed) >= b.grace() {
		return true
	}
	if b.ended(r) {
		return true
	}
	staged, err := b.kubeletStages(r.Key())
	return err == nil && !staged && time.Since(r.Changed) >= b.handOverWait()
}

// handOverWait is how long a pod that will have the volume as a CSI one may take
// to get it.
func (b *Bridge) handOverWait() time.Duration { return b.grace() / 5 }

// endUnclear ends what was left unclear. That the kubelet has staged the volume and
// has it for no pod, for longer than its pauses between two tries to unstage it,
// is of a try to stage it that failed, or of before a restart of the kubelet, which
// forgets it.
func (b *Bridge) endUnclear(d *FlexDriver, v *volume) error {
	r := v.record
	if b.csiPods(v.key) {
		v.log.Info("the kubelet's CSI plugin has the volume; it is neither unstaged nor detached here")
		handOver(r)
		return nil
	}
	v.log.Info("the kubelet's CSI plugin does not have the volume")
	if b.ended(r) {
		unstaged(r)
	} else if err := b.unstageNow(d, v); err != nil {
		return err
	}
	// A file that is left would be believed.
	_ = b.dirs().Remove(b.volDataPath(v.key))
	_ = b.dirs().Remove(filepath.Dir(b.volDataPath(v.key)))
	r.TakenOver = false
	if r.Device != "" {
		return nil // unmountdevice will come, and detach
	}
	return b.detachFrom(d, v, csivol.Secrets{})
}
