package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func (n node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if n.NoStage {
		return nil, status.Error(codes.Unimplemented, "this driver does not stage volumes")
	}
	if err := missing(field("volume_id", r.GetVolumeId()), field("staging_target_path", r.GetStagingTargetPath())); err != nil {
		return nil, err
	}
	if _, err := n.capability(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	v, err := n.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	a, err := n.admit(v, r)
	if err != nil {
		return nil, err
	}
	if err := checkSecrets(r); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, answer(n.stage(ctx, a, r.GetStagingTargetPath()))
}

func (n node) stage(ctx context.Context, a *admitted, path string) error {
	t, err := mounter.OpenTarget("", path)
	if err != nil {
		return err
	}
	defer t.Close()
	record, err := n.store.nodeVolume(n.NodeID, a.ID)
	if err != nil {
		return err
	}
	if staged, err := isMounted(record.StagingPath); err != nil {
		return err
	} else if staged {
		return n.sameStage(a, record, path)
	}
	record.StagingPath, record.Staged = path, a.capability
	if err := n.store.putNodeVolume(n.NodeID, a.ID, record); err != nil {
		return err
	}
	if err := n.mountDisk(ctx, a, t); err != nil {
		n.forget(a.ID, record, func() { record.StagingPath, record.Staged = "", capability{} })
		return err
	}
	return nil
}

// sameStage is for a volume that is staged already.
func (n node) sameStage(a *admitted, r *nodeRecord, path string) error {
	if r.StagingPath != path {
		return status.Errorf(codes.FailedPrecondition, "volume %s is staged at %s; there is one staging path for each volume", a.ID, r.StagingPath)
	}
	if !r.Staged.equal(a.capability) {
		return status.Errorf(codes.AlreadyExists, "volume %s is staged with another capability", a.ID)
	}
	return n.isAt(a.ID, path)
}

// forget takes back a record of what was not done. If that fails the record
// stays, and does no harm: nothing is mounted where it says.
func (n node) forget(id string, r *nodeRecord, change func()) {
	change()
	if err := n.store.putNodeVolume(n.NodeID, id, r); err != nil {
		n.Log.Warn("a record could not be taken back", "volume", id, "error", err)
	}
}

// isMounted reports whether something is mounted at a path that may be empty
// or gone.
func isMounted(path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	t, err := openTarget(path)
	if err != nil || t == nil {
		return false, err
	}
	defer t.Close()
	return t.Mounted()
}

// NodeUnstageVolume refuses while a target is left. Most drivers do not
// notice.
func (n node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if n.NoStage {
		return nil, status.Error(codes.Unimplemented, "this driver does not stage volumes")
	}
	if err := missing(field("volume_id", r.GetVolumeId()), field("staging_target_path", r.GetStagingTargetPath())); err != nil {
		return nil, err
	}
	if _, err := n.volume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, answer(n.unstage(ctx, r.GetVolumeId(), r.GetStagingTargetPath()))
}

func (n node) unstage(ctx context.Context, id, path string) error {
	record, err := n.store.nodeVolume(n.NodeID, id)
	if err != nil {
		return err
	}
	for target := range record.Targets {
		mounted, err := isMounted(target)
		if err != nil {
			return err
		}
		if mounted {
			return status.Errorf(codes.FailedPrecondition, "volume %s is still published at %s", id, target)
		}
		delete(record.Targets, target) // unmounted by another process
	}
	if err := n.unmountDisk(ctx, id, path); err != nil {
		return err
	}
	if record.StagingPath == path {
		record.StagingPath, record.Staged = "", capability{}
	}
	return n.store.putNodeVolume(n.NodeID, id, record)
}
