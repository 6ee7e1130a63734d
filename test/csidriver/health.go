package csidriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// ill is one entry of a volume's health.
func ill(kind csi.VolumeHealthErrorType, reason, format string, args ...any) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{Status: kind, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// health is what can be seen without a node: is there a disk?
func (d *Driver) health(v *volumeRecord) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: v.ID}
	if d.capacity(v.ID) == 0 {
		h.HealthStatuses = append(h.HealthStatuses, ill(csi.VolumeHealthErrorType_DATA_LOSS, "ImageMissing", "the image %s is gone or empty", d.store.image(v.ID)))
	}
	return h
}

func (c controller) ControllerGetVolumeHealth(_ context.Context, r *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: c.health(v)}, nil
}

// ControllerListVolumeHealth lists the volumes that are not well.
func (c controller) ControllerListVolumeHealth(_ context.Context, r *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	ids, next, err := c.page(r.GetMaxEntries(), r.GetStartingToken())
	if err != nil {
		return nil, err
	}
	list := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, id := range ids {
		v, err := c.store.volume(id)
		if err != nil || v == nil {
			continue // gone meanwhile
		}
		if h := c.health(v); len(h.GetHealthStatuses()) > 0 {
			list.Entries = append(list.Entries, h)
		}
	}
	return list, nil
}

// NodeGetVolumeHealth also looks at the volume's mounts on this node.
func (n node) NodeGetVolumeHealth(_ context.Context, r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	v, err := n.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	record, err := n.store.nodeVolume(n.NodeID, v.ID)
	if err != nil {
		return nil, answer(err)
	}
	h := n.health(v)
	paths := []string{}
	if record.StagingPath != "" {
		paths = append(paths, record.StagingPath)
	}
	for target := range record.Targets {
		paths = append(paths, target)
	}
	for _, path := range paths {
		if info, err := mountAt(path); err != nil || info == nil || !n.isVolume(v.ID, info) {
			h.HealthStatuses = append(h.HealthStatuses, ill(csi.VolumeHealthErrorType_INACCESSIBLE, "NotMounted", "the volume is not mounted at %s any more", path))
			break // one entry for each reason
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: h}, nil
}

// NodeGetStorageHealth says when the directory is nearly full: sparse images
// that cannot grow are I/O errors in pods.
func (n node) NodeGetStorageHealth(context.Context, *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	health := &csi.NodeGetStorageHealthResponse{}
	var fs unix.Statfs_t
	if err := unix.Statfs(n.Dir, &fs); err != nil {
		return nil, answer(err)
	}
	if fs.Bavail < fs.Blocks/20 {
		health.BackendHealth = append(health.BackendHealth, &csi.NodeGetStorageHealthResponse_StorageBackendHealth{
			Status: csi.StorageHealthErrorType_STORAGE_DEGRADED, Reason: "NearlyFull",
			Message: fmt.Sprintf("%d of %d blocks are left below %s", fs.Bavail, fs.Blocks, n.Dir),
		})
	}
	return health, nil
}
