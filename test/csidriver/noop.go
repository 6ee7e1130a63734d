package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// answerNothing answers what would change something, without doing it.
func answerNothing(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: volumeID(r.GetName()), CapacityBytes: r.GetCapacityRange().GetRequiredBytes(), VolumeContext: r.GetParameters()}}, nil
	case *csi.DeleteVolumeRequest:
		return &csi.DeleteVolumeResponse{}, nil
	case *csi.ControllerPublishVolumeRequest:
		return &csi.ControllerPublishVolumeResponse{PublishContext: publication{Token: "none"}.context(r.GetVolumeId())}, nil
	case *csi.ControllerUnpublishVolumeRequest:
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	case *csi.ControllerExpandVolumeRequest:
		return &csi.ControllerExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes(), NodeExpansionRequired: true}, nil
	case *csi.NodeStageVolumeRequest:
		return &csi.NodeStageVolumeResponse{}, nil
	case *csi.NodeUnstageVolumeRequest:
		return &csi.NodeUnstageVolumeResponse{}, nil
	case *csi.NodePublishVolumeRequest:
		return &csi.NodePublishVolumeResponse{}, nil
	case *csi.NodeUnpublishVolumeRequest:
		return &csi.NodeUnpublishVolumeResponse{}, nil
	case *csi.NodeExpandVolumeRequest:
		return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
	}
	return handler(ctx, req)
}
