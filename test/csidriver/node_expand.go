package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func (n node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if n.Expansion == ExpandNever {
		return nil, status.Error(codes.Unimplemented, "this driver does not expand volumes")
	}
	if err := missing(field("volume_id", r.GetVolumeId()), field("volume_path", r.GetVolumePath())); err != nil {
		return nil, err
	}
	v, err := n.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetVolumeCapability() != nil {
		if _, err := n.capability(r.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	path, err := n.pathToGrow(v.ID, r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	size := n.capacity(v.ID)
	if want := r.GetCapacityRange().GetRequiredBytes(); want > size {
		return nil, status.Errorf(codes.OutOfRange, "volume %s has %d bytes, not %d: ControllerExpandVolume comes first", v.ID, size, want)
	}
	if err := n.growMounted(ctx, v, path); err != nil {
		return nil, answer(err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// pathToGrow prefers the staging path to a target, which may be read-only.
func (n node) pathToGrow(id, path string) (string, error) {
	record, err := n.store.nodeVolume(n.NodeID, id)
	if err != nil {
		return "", answer(err)
	}
	_, published := record.Targets[path]
	if mounted, err := isMounted(path); err != nil || !mounted || !published && path != record.StagingPath {
		return "", status.Errorf(codes.NotFound, "volume %s is not staged or published at %s", id, path)
	}
	if record.StagingPath != "" {
		return record.StagingPath, nil
	}
	return path, nil
}

func (n node) growMounted(ctx context.Context, v *volumeRecord, path string) error {
	t, err := mounter.OpenTarget("", path)
	if err != nil {
		return err
	}
	defer t.Close()
	info, err := t.Info()
	if err != nil {
		return err
	}
	if info == nil || !n.isVolume(v.ID, info) {
		return status.Errorf(codes.NotFound, "volume %s is not mounted at %s", v.ID, path)
	}
	if n.Expansion == ExpandOffline && v.GrowFilesystem {
		return status.Errorf(codes.FailedPrecondition, "volume %s grows only while it is not published; the next NodeStageVolume will do it", v.ID)
	}
	if n.Directories {
		return n.grown(v)
	}
	if err := n.mounter.GrowFilesystem(ctx, info.Source, info.FSType, t); err != nil {
		if ctx.Err() != nil {
			return err
		}
		// As the specification has it for a filesystem that cannot: the caller
		// must not try again before the volume has been unpublished.
		return status.Errorf(codes.FailedPrecondition, "volume %s: %v", v.ID, err)
	}
	return n.grown(v)
}

// grown notes that the filesystem has followed.
func (n node) grown(v *volumeRecord) error {
	if !v.GrowFilesystem {
		return nil
	}
	v.GrowFilesystem = false
	return n.store.putVolume(v)
}
