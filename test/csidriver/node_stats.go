package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (n node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := missing(field("volume_id", r.GetVolumeId()), field("volume_path", r.GetVolumePath())); err != nil {
		return nil, err
	}
	if _, err := n.volume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	info, err := mountAt(r.GetVolumePath())
	if err != nil || info == nil || !n.isVolume(r.GetVolumeId(), info) {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", r.GetVolumeId(), r.GetVolumePath())
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &fs); err != nil {
		return nil, answer(err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{
			Unit:      csi.VolumeUsage_BYTES,
			Total:     int64(fs.Blocks) * fs.Bsize,
			Available: int64(fs.Bavail) * fs.Bsize,
			Used:      int64(fs.Blocks-fs.Bfree) * fs.Bsize,
		},
		{
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(fs.Files),
			Available: int64(fs.Ffree),
			Used:      int64(fs.Files - fs.Ffree),
		},
	}}, nil
}
