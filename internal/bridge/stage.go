package bridge

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// features asks the driver what it can do. A driver that is not there is a
// passing trouble, whatever the reason.
func (v *volume) features(d *FlexDriver) (f csivol.Features, err error) {
	err = v.rpc(0, func(ctx context.Context) error {
		f, err = d.Service.Features(ctx)
		return err
	})
	return f, err
}

// mountGroup is the fsGroup, for a driver that applies it by itself.
func mountGroup(fsGroup *int64, f csivol.Features) string {
	if !f.MountGroup || fsGroup == nil {
		return ""
	}
	return fmt.Sprint(*fsGroup)
}

// capability is CSI's VolumeCapability as it was recorded.
func capability(r *volstate.Record) csivol.Capability {
	return csivol.Capability{FSType: r.FSType, MountFlags: r.KnownFlags(), AccessMode: r.AccessMode.OrUsual(), MountGroup: r.MountGroup}
}

// stagingPath is the kubelet's own for the volume: so that its CSI plugin can
// take the volume over under a running pod, and since a volume has one staging
// path on a node (kubelet, pkg/volume/csi/csi_attacher.go, makeDeviceMountPath).
func (b *Bridge) stagingPath(d *FlexDriver, key csivol.Key) string {
	if d.StagingRoot != "" {
		return stagingBelow(d.StagingRoot, key)
	}
	return b.kubeletStagingPath(key)
}

func (b *Bridge) kubeletStagingPath(key csivol.Key) string {
	return stagingBelow(filepath.Join(b.KubeletDir, "plugins/kubernetes.io/csi"), key)
}

// KubeletStaging is where the kubelet's CSI plugin would have the volume of a
// record staged.
func (b *Bridge) KubeletStaging(r *volstate.Record) string { return b.kubeletStagingPath(r.Key()) }

func stagingBelow(root string, key csivol.Key) string {
	return filepath.Join(root, key.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(key.Handle))), "globalmount")
}

// stage calls NodeStageVolume unless the record says that it is done. In any
// doubt it is called again, also after a failed unstage, which may have
// unstaged half of it (kubernetes/kubernetes#86360).
func (b *Bridge) stage(s *setup) error {
	d, v, r := s.d, s.v, s.v.record
	if !s.f.Stage {
		return b.stagedBefore(d, v)
	}
	if r.Stage == volstate.Done && !b.shaken(r) {
		return nil
	}
	if err := b.unstageOther(s); err != nil {
		return err
	}
	if r.StagingPath == "" {
		r.StagingPath = b.stagingPath(d, v.key)
	}
	r.Stage, r.MountGroup = volstate.Doing, mountGroup(s.want.FSGroup, s.f)
	if err := b.save(v); err != nil {
		return err
	}
	if err := b.dirs().Make(r.StagingPath); err != nil {
		return flex.Errorf(flex.CodeInternal, "make the staging directory: %w", err)
	}
	err := v.rpc(d.Timeouts.Stage, func(ctx context.Context) error {
		return d.Service.NodeStage(ctx, csivol.StageRequest{
			Handle:         v.key.Handle,
			PublishContext: r.PublishContext,
			StagingPath:    r.StagingPath,
			Capability:     capability(r),
			Secrets:        s.want.Secrets.NodeStage,
			Context:        r.Context,
		})
	})
	if err != nil {
		if csivol.Final(err) && len(publishedPods(r)) == 0 {
			return errors.Join(remember(r, err), b.unstage(d, v))
		}
		return remember(r, err)
	}
	r.Stage, r.StageMounted = volstate.Done, b.stageMounted(r.StagingPath)
	return nil
}

// stagedBefore is stage for a driver that does not stage, or does no more since it was
// upgraded: what is staged stays so until it is unstaged.
func (b *Bridge) stagedBefore(d *FlexDriver, v *volume) error {
	r := v.record
	if r.Stage == volstate.None {
		r.StagingPath = ""
		return nil
	}
	if r.Stage == volstate.Done || len(publishedPods(r)) > 0 {
		return nil
	}
	return b.unstage(d, v) // in doubt, and it cannot be asked for again
}

// shaken reports that what is staged may have been unstaged by the kubelet's CSI
// plugin, or will be any moment: while nothing is published it may come between
// our NodeStageVolume and NodePublishVolume, which would publish a bare directory.
func (b *Bridge) shaken(r *volstate.Record) bool {
	return b.there(b.volDataPath(r.Key())) || r.StageMounted && !b.stageMounted(r.StagingPath)
}

// mounted is for where an error is as good as no.
func (b *Bridge) mounted(path string) bool {
	mounted, err := b.Mounts.Mounted(path)
	return err == nil && mounted
}

// stageMounts returns where what is staged at a path is mounted: there, or directly
// below, where some drivers mount it (ceph-csi, at globalmount/<volume id>).
func (b *Bridge) stageMounts(path string) ([]string, error) {
	mounted, err := b.Mounts.Mounted(path)
	switch {
	case err != nil:
		return nil, err
	case mounted:
		return []string{path}, nil
	}
	return b.Mounts.Below(path)
}

// stageMounted is for where an error is as good as no.
func (b *Bridge) stageMounted(path string) bool {
	mounts, err := b.stageMounts(path)
	return err == nil && len(mounts) > 0
}

// unstage calls NodeUnstageVolume, unless the kubelet's CSI plugin has the
// volume by now.
func (b *Bridge) unstage(d *FlexDriver, v *volume) error {
	r := v.record
	if r.Stage == volstate.None {
		return nil
	}
	over, err := b.takenOver(v)
	if err != nil {
		return err
	}
	if over && r.StagingPath != b.kubeletStagingPath(v.key) {
		return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is staged at %s, and the kubelet's CSI plugin uses it, too (%s is there); it is unstaged when the pods with its CSI PersistentVolume are gone from this node", v.key, r.StagingPath, b.volDataPath(v.key))
	}
	r.TakenOver = over // which detach, perhaps later, has to know
	if over {
		r.Stage, r.StagingPath, r.StageDead = volstate.None, "", ""
		return nil
	}
	return b.unstageNow(d, v)
}

// unstageNow calls NodeUnstageVolume.
func (b *Bridge) unstageNow(d *FlexDriver, v *volume) error {
	r := v.record
	r.Stage = volstate.Undoing
	if err := b.save(v); err != nil {
		return err
	}
	if err := b.unstageAt(d, v, r.StagingPath); err != nil {
		return remember(r, err)
	}
	b.removeStaging(r.StagingPath)
	r.Stage, r.StagingPath, r.StageDead = volstate.None, "", ""
	return nil
}

// unstageAt calls NodeUnstageVolume and verifies that the path is free. Nobody
// asks before whether the driver stages, which a recovered record does not
// know: tear-down does not wait for a controller, whose features those are, too.
func (b *Bridge) unstageAt(d *FlexDriver, v *volume, path string) error {
	call := func() error {
		err := v.rpc(d.Timeouts.Unstage, func(ctx context.Context) error {
			return d.Service.NodeUnstage(ctx, v.key.Handle, path)
		})
		if err == nil || csivol.NotFound(err) || csivol.Unimplemented(err) {
			err = b.gone(path, err)
		}
		return err
	}
	return b.withoutDead(v, path, call)
}

// gone verifies that nothing is mounted at a path, or directly below, any more: some
// drivers report success, or that they do not know the volume, and leave the mount.
func (b *Bridge) gone(path string, said error) error {
	left, err := b.stageMounts(path)
	if err != nil || len(left) == 0 {
		return err
	}
	if said != nil {
		return fmt.Errorf("the driver does not know the volume, and it is still mounted at %s: %w", left[0], said)
	}
	return flex.Errorf(flex.CodeInternal, "the driver reported success, and the volume is still mounted at %s", left[0])
}

// removeStaging removes the directories that were made, if they are empty, as
// the kubelet does; some drivers have removed theirs already.
func (b *Bridge) removeStaging(path string) {
	_ = b.dirs().Remove(path)
	_ = b.dirs().Remove(filepath.Dir(path))
}
