package bridge

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// look looks at one fact. An error is one after which nothing can be decided.
func (x *execution) look(f lifecycle.Fact) error {
	seen, err := x.see(f)
	if err != nil {
		return err
	}
	if x.observed.Facts == nil {
		x.observed.Facts = map[lifecycle.Fact]lifecycle.Seen{}
	}
	x.observed.Facts[f] = seen
	return nil
}

func (x *execution) see(f lifecycle.Fact) (seen lifecycle.Seen, err error) {
	b, r := x.b, x.v.record
	switch f.What {
	case lifecycle.TheDriver:
		seen = x.seeDriver()
	case lifecycle.ThePlugin:
		seen.Plugin, err = x.node.seePlugin(x.v.key)
	case lifecycle.TheStage:
		seen = x.node.seeStage(r.StagingPath)
	case lifecycle.TheDevice:
		seen = x.node.seeMount(r.Device)
	case lifecycle.TheDir:
		seen = x.node.seeMount(f.Dir)
	case lifecycle.TheTarget:
		seen = x.node.seeMount(target(r.Targets[f.Dir], f.Dir))
	case lifecycle.ThePod:
		seen.Pod = x.node.seePod(f.Dir)
	case lifecycle.ThePVState:
		seen = x.pvStateOf(f.Dir)
	case lifecycle.ThePendingUnmount:
		seen.Yes, seen.Err = b.pendingUnmount(f.Dir)
	case lifecycle.TheOther:
		if key, ok := b.registry.byDirectory(f.Dir); ok && key != x.v.key {
			seen.Err = flex.Errorf(flex.CodeFailedPrecondition, "%s still belongs to volume %s; it is free when unmount of it has succeeded", f.Dir, key)
		}
	case lifecycle.TheAttachment:
		seen.Yes = b.attachmentLost(r) || (x.op.Goal == lifecycle.Mount && b.renamed(r) != nil)
	case lifecycle.TheClaim:
		seen.Err = x.d.RequirePod(x.v.ctx, x.op.Volume, b.NodeName)
	case lifecycle.TheCall:
		seen.Err = x.seeCall(f.Dir)
	case lifecycle.TheTurn:
		seen.Yes = x.d != nil && b.republishes(x.d) && b.registry.isDue(x.v.key, f.Dir, republishEvery)
	case lifecycle.TheSize:
		seen.Filesystem, seen.Device, seen.Err = b.Mounts.Size(target(r.Targets[f.Dir], f.Dir))
	case lifecycle.TheSecrets:
		seen.Yes = x.otherStageSecrets()
	}
	return seen, err
}

// seeDriver asks the driver what it can do, once for an operation.
func (x *execution) seeDriver() lifecycle.Seen {
	if x.seenDriver != nil {
		return *x.seenDriver
	}
	f, err := x.v.features(x.d)
	if err != nil {
		x.b.noticeAway(x.op.Volume, err)
		return lifecycle.Seen{Err: err}
	}
	if x.policy, err = x.d.policy(x.v.ctx); err != nil {
		return lifecycle.Seen{Err: err}
	}
	d := &lifecycle.DriverFacts{
		Features: f, FSGroup: x.policy.FSGroup,
		CanCluster: x.d.Attacher != nil, ClusterErr: x.d.AttacherSuffices(), RepairInUse: x.d.RepairInUse,
	}
	d.Route, d.RouteErr = x.d.route(f, x.policy)
	d.Device = x.b.device(x.d, x.op.Volume)
	x.seenDriver = &lifecycle.Seen{Driver: d}
	return *x.seenDriver
}

// health tells a mount that does not work from one of which nothing is known, as
// nothing has answered in time.
func health(err error) lifecycle.Seen {
	switch {
	case err == nil:
		return lifecycle.Seen{Mount: lifecycle.Alive}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return lifecycle.Seen{Mount: lifecycle.Silent, Err: err}
	}
	return lifecycle.Seen{Mount: lifecycle.Dead, Err: err}
}

// seeMount tells what is at a path.
func (n node) seeMount(path string) lifecycle.Seen {
	mounted, err := n.mounts.Mounted(path)
	switch {
	case err != nil:
		return lifecycle.Seen{Err: err}
	case mounted:
		return health(n.mounts.Healthy(path))
	case n.there(path):
		return lifecycle.Seen{Mount: lifecycle.NotMounted}
	}
	return lifecycle.Seen{Mount: lifecycle.NoDir}
}

// seeStage tells what is at the staging path, or directly below it.
func (n node) seeStage(path string) lifecycle.Seen {
	mounts, err := n.stageMounts(path)
	if err != nil {
		return lifecycle.Seen{Err: err}
	}
	seen := lifecycle.Seen{Mount: lifecycle.NotMounted}
	for _, mount := range mounts {
		if seen = health(n.mounts.Healthy(mount)); seen.Mount != lifecycle.Alive {
			break
		}
	}
	return seen
}

// seePlugin looks what the kubelet's CSI plugin has of the volume.
func (n node) seePlugin(key csivol.Key) (p lifecycle.PluginState, err error) {
	p.Pods = n.csiPods(key)
	if p.Staged, err = n.kubeletStages(key); !p.Staged || err != nil {
		return p, err
	}
	p.Mounted = n.maybeStaged(n.stagingPath(key))
	p.Since = writtenAt(n.volDataPath(key))
	return p, nil
}

// seePod tells what the node shows of the pod that a directory belongs to.
func (n node) seePod(dir string) lifecycle.PodState {
	p := lifecycle.PodState{Known: true, Volumes: n.there(filepath.Dir(dir))}
	place, err := kubeletdir.Parse(dir)
	if err != nil || place.PodUID == "" {
		return p
	}
	pods := filepath.Join(place.Root, "pods")
	p.Known = n.there(pods)
	there, err := n.dirs.Exists(filepath.Join(pods, place.PodUID))
	p.Gone = err == nil && !there
	containers, err := n.dirs.Exists(filepath.Join(pods, place.PodUID, "containers"))
	p.NoContainer = err == nil && !containers
	return p
}

// writtenAt is when a file was written; zero: it is gone by now.
func writtenAt(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// pvStateWait is short: an unmount waits for it, and what is not known does not keep
// it.
const pvStateWait = 3 * time.Second

// pvStateOf is seePVState, once for an operation.
func (x *execution) pvStateOf(dir string) lifecycle.Seen {
	if seen, known := x.pvStates[dir]; known {
		return seen
	}
	if x.pvStates == nil {
		x.pvStates = map[string]lifecycle.Seen{}
	}
	x.pvStates[dir] = x.seePVState(dir)
	return x.pvStates[dir]
}

// seePVState tells what became of a volume since it was mounted at dir, for a pod or
// as a device.
func (x *execution) seePVState(dir string) (seen lifecycle.Seen) {
	b, v := x.b, x.v
	place, err := kubeletdir.Parse(dir)
	if err != nil || b.PVState == nil || (v.record.Targets[dir] == nil && v.record.Device != dir) {
		return seen
	}
	err = v.withDeadline(pvStateWait, func(ctx context.Context) (err error) {
		seen.PVState, err = b.PVState(ctx, place.Volume, v.key, place.PodUID)
		return err
	})
	if err != nil {
		v.log.Warn("whether the PersistentVolume is still the one that was mounted is not known", "error", err)
		return lifecycle.Seen{}
	}
	if seen.PVState.Replaced != "" && v.record.Targets[dir] != nil {
		seen.SameFilesystem = x.node.samePublished(v.key, target(v.record.Targets[dir], dir), place.PodUID)
	}
	return seen
}

// seeCall is an error if something is not known that a call would say: records that
// were read from their files lack values that look secret, until their
// PersistentVolume was read, and who the pod is, where it was taken up from the node.
func (x *execution) seeCall(dir string) error {
	r := x.v.record
	_, err := x.b.driverOf(r)
	if err != nil {
		return err
	}
	if dir == "" { // of the attachment
		return x.complete()
	}
	if x.secrets, err = x.d.staticSecrets(x.v.ctx); err != nil {
		return err
	}
	needed := x.policy.PodInfo || len(x.policy.Tokens) > 0
	if needed && r.Targets[dir].Pod.Name == "" {
		return flex.Errorf(flex.CodeFailedPrecondition, "which pod has %s is not known", dir)
	}
	return x.complete()
}

func (d *FlexDriver) staticSecrets(ctx context.Context) (csivol.Secrets, error) {
	if d.StaticSecrets == nil {
		return csivol.Secrets{}, nil
	}
	return d.StaticSecrets(ctx)
}

// complete fills in what the file of a record does not hold
// (volstate.Record.Incomplete), from the PersistentVolume, or says why it cannot. The
// next call with options does so as well.
func (x *execution) complete() error {
	r := x.v.record
	if !r.Incomplete() {
		return nil
	}
	unknown := flex.Errorf(flex.CodeFailedPrecondition, "the volume context or the mount flags of volume %s hold values that look secret, which are not kept on the disk, and PersistentVolume %s does not tell them as they were; flex2csi knows them again when the kubelet mounts the volume for another pod of this node", r.Key(), r.Name)
	if x.d == nil || x.d.Read == nil || r.Inline {
		return unknown
	}
	err := x.v.withDeadline(pvStateWait, func(ctx context.Context) error {
		v, err := x.d.Read(ctx, r.Name)
		if err == nil && v.Key() == r.Key() {
			r.Complete(v.Context, v.MountFlags)
		}
		return err
	})
	switch {
	case err != nil:
		return flex.Errorf(flex.CodeOf(err), "%w: %w", unknown, err)
	case r.Incomplete():
		return unknown
	}
	return nil
}

// report says which mounts do not work, or only do not answer.
func (x *execution) report(ill lifecycle.Ailments) {
	for dir, why := range ill.Targets {
		x.reportTarget(dir, why)
	}
}

func (x *execution) reportTarget(dir, why string) {
	defer x.concern(dir)()
	r := x.v.record
	if x.observed.Facts[lifecycle.Fact{What: lifecycle.TheDir, Dir: dir}].Mount == lifecycle.Silent {
		x.v.log.Warn("a mount does not answer", "why", why)
		x.b.notify(r, r.Targets[dir].Pod, "VolumeSilent", "what is mounted for the volume does not answer: %s; it is left as it is", why)
		return
	}
	x.v.log.Warn("a mount is dead", "why", why)
	x.b.notify(r, r.Targets[dir].Pod, "VolumeCorrupted", "what is mounted for the volume does not work any more: %s; if it is not mounted again soon, delete the pod", why)
}

// republishEvery is about as often as the kubelet looks at a pod again
// (pkg/kubelet/kubelet.go, syncFrequency).
const republishEvery = time.Minute

// republishes does not wait for what is not known yet: Reconcile looks at all
// volumes.
func (b *Bridge) republishes(d *FlexDriver) bool {
	now, cancel := context.WithCancel(b.Context)
	cancel()
	policy, err := d.policy(now)
	return err == nil && policy.Republish
}

func (x *execution) features() csivol.Features {
	if x.seenDriver == nil || x.seenDriver.Driver == nil {
		return csivol.Features{}
	}
	return x.seenDriver.Driver.Features
}

// features asks the driver what it can do. A driver that is not there is a
// passing trouble, whatever the reason.
func (v *volume) features(d *FlexDriver) (f csivol.Features, err error) {
	err = v.withDeadline(0, func(ctx context.Context) error {
		f, err = d.Service.Features(ctx)
		return err
	})
	return f, err
}
