package csiclient

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// All requests are made here, so that flex2csi map shows what a driver would get.

// ControllerPublishRequest makes a request for a driver that can do f. It is not read-only:
// pods share the attachment, and each target says for itself whether it is.
func ControllerPublishRequest(r csivol.AttachRequest, f csivol.Features) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{
		VolumeId:         r.Handle,
		NodeId:           r.NodeID,
		VolumeCapability: toCSI(r.Capability, f.ControllerSingleWriter),
		Secrets:          reveal(r.Secrets),
		VolumeContext:    r.Context,
	}
}

// ControllerUnpublishRequest makes a request.
func ControllerUnpublishRequest(handle, nodeID string, secrets map[string]flex.Secret) *csi.ControllerUnpublishVolumeRequest {
	return &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: nodeID, Secrets: reveal(secrets)}
}

// ControllerExpandRequest makes a request for a driver that can do f.
func ControllerExpandRequest(r csivol.ExpandRequest, f csivol.Features) *csi.ControllerExpandVolumeRequest {
	return &csi.ControllerExpandVolumeRequest{
		VolumeId:         r.Handle,
		CapacityRange:    &csi.CapacityRange{RequiredBytes: r.Size},
		VolumeCapability: toCSI(r.Capability, f.ControllerSingleWriter),
		Secrets:          reveal(r.Secrets),
	}
}

// NodeStageRequest makes a request for a driver that can do f.
func NodeStageRequest(r csivol.StageRequest, f csivol.Features) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId:          r.Handle,
		PublishContext:    r.PublishContext,
		StagingTargetPath: r.StagingPath,
		VolumeCapability:  toCSI(r.Capability, f.NodeSingleWriter),
		Secrets:           reveal(r.Secrets),
		VolumeContext:     r.Context,
	}
}

// NodeUnstageRequest makes a request.
func NodeUnstageRequest(handle, stagingPath string) *csi.NodeUnstageVolumeRequest {
	return &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: stagingPath}
}

// NodePublishRequest makes a request for a driver that can do f.
func NodePublishRequest(r csivol.PublishRequest, f csivol.Features) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId:          r.Handle,
		PublishContext:    r.PublishContext,
		StagingTargetPath: r.StagingPath,
		TargetPath:        r.TargetPath,
		VolumeCapability:  toCSI(r.Capability, f.NodeSingleWriter),
		Readonly:          r.ReadOnly,
		Secrets:           reveal(r.Secrets),
		VolumeContext:     r.Context,
	}
}

// NodeUnpublishRequest makes a request.
func NodeUnpublishRequest(handle, targetPath string) *csi.NodeUnpublishVolumeRequest {
	return &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: targetPath}
}

// NodeExpandRequest makes a request for a driver that can do f.
func NodeExpandRequest(r csivol.ExpandRequest, f csivol.Features) *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId:          r.Handle,
		VolumePath:        r.VolumePath,
		StagingTargetPath: r.StagingPath,
		CapacityRange:     &csi.CapacityRange{RequiredBytes: r.Size},
		VolumeCapability:  toCSI(r.Capability, f.NodeSingleWriter),
		Secrets:           reveal(r.Secrets),
	}
}

// reveal is the one place where secrets leave their type, for the driver.
func reveal(secrets map[string]flex.Secret) map[string]string {
	if len(secrets) == 0 {
		return nil
	}
	out := make(map[string]string, len(secrets))
	for k, s := range secrets {
		out[k] = string(s.Reveal())
	}
	return out
}

// toCSI maps access modes as the kubelet does (pkg/volume/csi/csi_client.go,
// asCSIAccessModeV1 and asSingleNodeMultiWriterCapableCSIAccessModeV1,
// Kubernetes v1.37.1): drivers that know the newer single-node modes get them.
func toCSI(c csivol.Capability, singleNode bool) *csi.VolumeCapability {
	mode := csi.VolumeCapability_AccessMode_UNKNOWN
	switch c.AccessMode {
	case csivol.ReadWriteOnce:
		mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		if singleNode {
			mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
	case csivol.ReadWriteOncePod:
		mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		if singleNode {
			mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		}
	case csivol.ReadOnlyMany:
		mode = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case csivol.ReadWriteMany:
		mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	}
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
			FsType:           c.FSType,
			MountFlags:       c.MountFlags,
			VolumeMountGroup: c.MountGroup,
		}},
	}
}

// nodeStatsRequest makes a request.
func nodeStatsRequest(handle, volumePath, stagingPath string) *csi.NodeGetVolumeStatsRequest {
	return &csi.NodeGetVolumeStatsRequest{VolumeId: handle, VolumePath: volumePath, StagingTargetPath: stagingPath}
}
