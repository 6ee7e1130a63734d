package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func (n node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := missing(field("volume_id", r.GetVolumeId()), field("target_path", r.GetTargetPath())); err != nil {
		return nil, err
	}
	if _, err := n.capability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := n.volumeToPublish(ctx, r)
	if err != nil {
		return nil, err
	}
	a, err := n.admit(v, r)
	if err != nil {
		return nil, err
	}
	record, err := n.store.nodeVolume(n.NodeID, v.ID)
	if err != nil {
		return nil, answer(err)
	}
	direct := n.NoStage || v.Ephemeral
	if direct {
		err = checkSecrets(r)
	} else {
		err = checkStaged(a, record, r.GetStagingTargetPath())
	}
	if err == nil {
		err = checkPod(r)
	}
	if err != nil {
		return nil, err
	}
	p := publish{n: n, volume: a, record: record, path: r.GetTargetPath(), direct: direct, want: targetRecord{ReadOnly: r.GetReadonly(), Capability: a.capability}}
	err = p.do(ctx)
	if err != nil && v.Ephemeral && len(record.Targets) == 0 {
		if err := n.store.deleteVolume(v.ID); err != nil {
			n.Log.Warn("an ephemeral volume stays until it is unpublished", "volume", v.ID, "error", err)
		}
	}
	return &csi.NodePublishVolumeResponse{}, answer(err)
}

// podNamespace in the volume context names the namespace of which pods may have
// the volume. It wants podInfoOnMount.
const podNamespace = "podNamespace"

func checkPod(r *csi.NodePublishVolumeRequest) error {
	want, got := r.GetVolumeContext()[podNamespace], r.GetVolumeContext()["csi.storage.k8s.io/pod.namespace"]
	if want != "" && got != want {
		return status.Errorf(codes.PermissionDenied, "the volume is for pods of namespace %q, not %q", want, got)
	}
	return nil
}

func checkStaged(a *admitted, r *nodeRecord, stagingPath string) error {
	if stagingPath == "" {
		return status.Error(codes.FailedPrecondition, "staging_target_path is missing")
	}
	staged, err := isMounted(r.StagingPath)
	switch {
	case err != nil:
		return answer(err)
	case !staged || r.StagingPath != stagingPath:
		return status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", a.ID, stagingPath)
	}
	return nil
}

// publish is one NodePublishVolume.
type publish struct {
	n      node
	volume *admitted
	record *nodeRecord
	path   string
	direct bool // without a stage
	want   targetRecord
}

func (p publish) do(ctx context.Context) error {
	t, err := mounter.OpenTarget("", p.path)
	if err != nil {
		return err // the caller makes what is above the target
	}
	defer t.Close()
	if done, err := p.compare(); done || err != nil {
		return err
	}
	if p.record.Targets == nil {
		p.record.Targets = map[string]targetRecord{}
	}
	p.record.Targets[p.path] = p.want
	if err := p.n.store.putNodeVolume(p.n.NodeID, p.volume.ID, p.record); err != nil {
		return err
	}
	err = t.Create()
	if err == nil {
		err = p.mount(ctx, t)
	}
	if err != nil {
		t.Discard()
		p.n.forget(p.volume.ID, p.record, func() { delete(p.record.Targets, p.path) })
	}
	return err
}

func (p publish) mount(ctx context.Context, t *mounter.Target) error {
	v := *p.volume
	v.readOnly = v.readOnly || p.want.ReadOnly
	if p.direct {
		return p.n.mountDisk(ctx, &v, t)
	}
	return p.n.mounter.Bind(ctx, p.record.StagingPath, anywhere(), t, bindOptions(v.MountFlags, v.readOnly), p.n.group(ctx, v.capability, v.readOnly))
}

// compare is the table of the CSI specification for a second NodePublishVolume
// (Node Service RPC, NodePublishVolume).
func (p publish) compare() (done bool, err error) {
	for path, old := range p.record.Targets {
		mounted, err := isMounted(path)
		switch {
		case err != nil:
			return false, err
		case !mounted:
			continue // never mounted, or unmounted by another process
		case path == p.path:
			return true, p.same(old)
		case !p.n.severalTargets(p.volume.capability) || !p.n.severalTargets(old.Capability):
			return false, status.Errorf(codes.FailedPrecondition, "volume %s is published at %s, and %s does not allow a second target", p.volume.ID, path, p.volume.Mode)
		}
	}
	return false, nil
}

// same is for a target where something is mounted.
func (p publish) same(old targetRecord) error {
	if old.ReadOnly != p.want.ReadOnly || !old.Capability.equal(p.want.Capability) {
		return status.Errorf(codes.AlreadyExists, "volume %s is published at %s with another capability or readonly flag", p.volume.ID, p.path)
	}
	return p.n.isAt(p.volume.ID, p.path)
}

func (n node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := missing(field("volume_id", r.GetVolumeId()), field("target_path", r.GetTargetPath())); err != nil {
		return nil, err
	}
	if !isID(r.GetVolumeId()) {
		return nil, noVolume(r.GetVolumeId())
	}
	v, err := n.store.volume(r.GetVolumeId())
	if err != nil {
		return nil, answer(err)
	}
	if err := n.unpublish(ctx, r.GetVolumeId(), r.GetTargetPath()); err != nil {
		return nil, answer(err)
	}
	if v != nil && v.Ephemeral {
		return &csi.NodeUnpublishVolumeResponse{}, answer(n.store.deleteVolume(v.ID))
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// unpublish removes the mount and the directory. A volume that is gone, as an
// ephemeral one after its first unpublish, has nothing there: that is fine.
func (n node) unpublish(ctx context.Context, id, path string) error {
	if err := n.unmountDisk(ctx, id, path); err != nil {
		return err
	}
	record, err := n.store.nodeVolume(n.NodeID, id)
	if err != nil {
		return err
	}
	// Never more than an empty directory: below may be data. Then its owner does not
	// matter.
	_, ours := record.Targets[path]
	if err := remove(path); err != nil && ours {
		return err
	}
	delete(record.Targets, path)
	return n.store.putNodeVolume(n.NodeID, id, record)
}

// The context of an ephemeral volume says so, and may have a size.
const (
	contextEphemeral = kubernetesPrefix + "ephemeral"
	contextSize      = "size"
)

// volumeToPublish makes an ephemeral volume if there is none yet.
func (n node) volumeToPublish(ctx context.Context, r *csi.NodePublishVolumeRequest) (*volumeRecord, error) {
	if r.GetVolumeContext()[contextEphemeral] != "true" {
		return n.volume(r.GetVolumeId())
	}
	id := r.GetVolumeId()
	if !isID(id) {
		return nil, status.Errorf(codes.InvalidArgument, "volume_id %q: letters, digits, dots, dashes and underscores only", id)
	}
	v, err := n.store.volume(id)
	if err != nil {
		return nil, answer(err)
	}
	if v != nil {
		if !v.Ephemeral {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is there and is not ephemeral", id)
		}
		return v, nil
	}
	size := int64(defaultCapacity)
	if s := r.GetVolumeContext()[contextSize]; s != "" {
		if size, err = ParseSize(s); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "%s: %v", contextSize, err)
		}
	}
	v = &volumeRecord{ID: id, Name: id, Ephemeral: true}
	return v, answer(n.create(ctx, v, size))
}
