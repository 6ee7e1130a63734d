package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Mounts that die with a process of their driver (FUSE) are found by
// Reconcile, and replaced where no container can be harmed: a container keeps
// the dead mount, or, while it is replaced, sees the bare directory below and
// writes there. Elsewhere they are reported until their pods are deleted. What
// only does not answer is reported, and never replaced: it may answer again, as a
// server that fails over does.

// silent reports whether it is not known whether a mount works: nothing has
// answered in time.
func silent(health error) bool { return errors.Is(health, os.ErrDeadlineExceeded) }

// unanswered ends a mount that finds what only does not answer.
func unanswered(v *volume, health error) error {
	return flex.Errorf(flex.CodeUnavailable, "volume %s is mounted on this node already, and does not answer: %w; it is left as it is, and mount is tried again", v.key, health)
}

// withoutDead calls a tear-down RPC once more without the mount, if the driver
// failed and what is mounted there is dead: some stumble over their own.
func (b *Bridge) withoutDead(v *volume, path string, call func() error) error {
	err := call()
	if err == nil {
		return nil
	}
	if health := b.died(path); health == nil || silent(health) {
		return err
	}
	mounts, lookErr := b.stageMounts(path)
	if lookErr != nil {
		return errors.Join(err, lookErr)
	}
	for _, mount := range mounts {
		if health := b.Mounts.Healthy(mount); health == nil || silent(health) {
			continue
		}
		if unmountErr := b.Mounts.Unmount(v.ctx, mount); unmountErr != nil {
			return errors.Join(err, unmountErr)
		}
	}
	return call()
}

// reviveStage makes a new pod's mount stage again what died. It cannot where
// other pods still hold the dead mount.
func (b *Bridge) reviveStage(d *FlexDriver, v *volume) error {
	r := v.record
	if r.Stage != volstate.Done {
		return nil
	}
	health := b.died(r.StagingPath)
	switch {
	case health == nil:
		return nil
	case silent(health):
		return unanswered(v, health)
	}
	if pods := publishedPods(r); len(pods) > 0 {
		return flex.Errorf(flex.CodeFailedPrecondition, "volume %s: what its driver staged on this node is dead, most likely since the driver was restarted, and pods still hold it; delete these pods, and it will be staged anew: %s", v.key, strings.Join(pods, ", "))
	}
	return b.unstage(d, v)
}

// reviveTarget makes mount publish again what died, or vanished, before the pod
// saw it.
func (b *Bridge) reviveTarget(d *FlexDriver, v *volume, t *volstate.Target, dir string) error {
	if t.Publish != volstate.Done {
		return nil
	}
	path := target(t, dir)
	if b.alive(path) {
		return nil
	}
	if health := b.died(path); silent(health) {
		return unsettled{unanswered(v, health)}
	}
	return b.unpublish(d, v, t, dir)
}

// died returns why what is mounted at a path, or directly below, does not work, or is
// silent. What is not mounted is no dead mount.
func (b *Bridge) died(path string) error {
	mounts, _ := b.stageMounts(path) // the step that follows will meet the error
	for _, mount := range mounts {
		if err := b.Mounts.Healthy(mount); err != nil {
			return err
		}
	}
	return nil
}

// alive reports whether something is mounted and works. What is not mounted
// must not be bound: the pod would write to the disk of the node.
func (b *Bridge) alive(path string) bool {
	mounted, err := b.Mounts.Mounted(path)
	return err == nil && mounted && b.Mounts.Healthy(path) == nil
}

// publishedPods names the pods that have the volume.
func publishedPods(r *volstate.Record) (pods []string) {
	for dir, t := range r.Targets {
		if t.Publish != volstate.None {
			pods = append(pods, podName(t, dir))
		}
	}
	slices.Sort(pods)
	return pods
}

func podName(t *volstate.Target, dir string) string {
	if t.Pod.Name != "" {
		return t.Pod.Namespace + "/" + t.Pod.Name
	}
	if place, err := kubeletdir.Parse(dir); err == nil {
		return "pod " + place.PodUID
	}
	return dir
}

// ailment is what is wrong with mounts that ought to be there.
type ailment struct {
	stage   string            // why the staged mount is dead
	targets map[string]string // why what a pod has is dead, or missing
	silent  bool              // one of them only does not answer
}

// missing marks a target whose directory is not mounted though nobody asked to
// unmount it.
const missing = "not mounted any more"

// examine looks at the mounts that a record says are there.
func (b *Bridge) examine(r *volstate.Record) ailment {
	a := ailment{targets: map[string]string{}}
	if r.Stage == volstate.Done {
		if err := b.died(r.StagingPath); err != nil {
			a.stage, a.silent = err.Error(), silent(err)
		}
	}
	for dir, t := range r.Targets {
		if !t.Bound {
			continue
		}
		mounted, err := b.Mounts.Mounted(dir)
		switch {
		case err != nil: // not known
		case !mounted && b.there(dir):
			a.targets[dir] = missing
		case mounted:
			if err := b.Mounts.Healthy(dir); err != nil {
				a.targets[dir], a.silent = err.Error(), a.silent || silent(err)
			}
		}
	}
	return a
}

// there reports whether a directory exists. The kubelet removes a pod's volume
// directory after it has called unmount (pkg/volume/flexvolume/unmounter.go).
func (b *Bridge) there(dir string) bool {
	there, err := b.dirs().Exists(dir)
	return err == nil && there
}

// noted reports whether the record says the same already.
func (a ailment) noted(r *volstate.Record) bool {
	for dir, t := range r.Targets {
		if t.Dead != a.targets[dir] {
			return false
		}
	}
	return r.StageDead == a.stage
}

// none reports whether there is nothing to repair.
func (a ailment) none() bool { return a.silent || a.stage == "" && len(a.targets) == 0 }

// treat writes down what is wrong, which the first look does, and repairs what
// a second look finds unchanged.
func (b *Bridge) treat(v *volume) error {
	r := v.record
	a := b.examine(r)
	if !a.noted(r) {
		r.StageDead = a.stage
		for dir, t := range r.Targets {
			t.Dead = a.targets[dir]
			if t.Dead != "" {
				b.reportDead(v, t, dir, a.silent)
			}
		}
		return nil
	}
	if a.none() {
		return nil
	}
	d, err := b.driverOf(r)
	if err != nil {
		return err
	}
	return b.repair(d, v, a)
}

// repair replaces what is dead: unpublish, unstage, stage, publish, bind.
func (b *Bridge) repair(d *FlexDriver, v *volume, a ailment) error {
	r := v.record
	dirs := b.repairable(d, r, a)
	if len(dirs) == 0 {
		return nil // reported; the pods have to be deleted
	}
	secrets, err := d.staticSecrets(v.ctx)
	if err != nil {
		return fmt.Errorf("mounts of volume %s cannot be replaced, delete the pods: %w", v.key, err)
	}
	s, err := b.setup(d, v, nil)
	if err != nil {
		return err
	}
	if err := s.requireKnown(dirs...); err != nil {
		return fmt.Errorf("mounts of volume %s cannot be replaced, delete the pods: %w", v.key, err)
	}
	v.log.Info("replacing dead mounts", "stage", a.stage, "dirs", dirs)
	for _, dir := range dirs {
		if a.targets[dir] == missing && a.stage == "" && b.alive(target(r.Targets[dir], dir)) {
			continue // only the bind is
		}
		if err := b.unpublish(d, v, r.Targets[dir], dir); err != nil {
			return err
		}
	}
	if a.stage != "" {
		if err := b.unstage(d, v); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		t := r.Targets[dir]
		s.want = volumeOf(r, t, secrets)
		if err := b.bring(s, t, dir); err != nil {
			return err
		}
		t.Dead = ""
	}
	return nil
}

// repairable returns the directories to be mounted anew: all or none if what
// was staged is dead, since it is shared.
func (b *Bridge) repairable(d *FlexDriver, r *volstate.Record, a ailment) (dirs []string) {
	for dir, t := range r.Targets {
		ill := a.targets[dir] != "" || a.stage != "" && t.Publish != volstate.None
		switch {
		case !ill:
		case t.Bound && b.harmless(d, a.targets[dir], dir):
			dirs = append(dirs, dir)
		case a.stage != "":
			return nil
		}
	}
	slices.Sort(dirs)
	return dirs
}

// harmless reports whether no container can be looking at dir. A mount that is
// missing is not there to be looked at. Otherwise the kubelet must never have
// made a container for the pod: it makes pods/<uid>/containers/<name> first
// (pkg/kubelet/kubelet_pods.go, GenerateRunContainerOptions, Kubernetes
// v1.37.1, since every container has a terminationMessagePath).
func (b *Bridge) harmless(d *FlexDriver, why, dir string) bool {
	if why == missing || d.RepairInUse {
		return true
	}
	place, err := kubeletdir.Parse(dir)
	if err != nil || place.PodUID == "" {
		return false
	}
	there, err := b.dirs().Exists(filepath.Join(place.Root, "pods", place.PodUID, "containers"))
	return err == nil && !there
}

// volumeOf says again what the call for a target has said.
func volumeOf(r *volstate.Record, t *volstate.Target, s csivol.Secrets) *csivol.Volume {
	return &csivol.Volume{
		FlexDriver: r.FlexDriver, Driver: r.Driver, Handle: r.Handle, Name: r.Name,
		Context: r.Context, FSType: r.FSType, MountFlags: r.MountFlags,
		AccessMode: r.AccessMode, AccessModes: r.AccessModes,
		ReadOnly: t.ReadOnly, FSGroup: t.FSGroup, Pod: t.Pod, Secrets: s,
	}
}

func (d *FlexDriver) staticSecrets(ctx context.Context) (csivol.Secrets, error) {
	if d.StaticSecrets == nil {
		return csivol.Secrets{}, nil
	}
	return d.StaticSecrets(ctx)
}
