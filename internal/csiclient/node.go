package csiclient

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// NodeStage is NodeStageVolume.
func (c *Client) NodeStage(ctx context.Context, r csivol.StageRequest) error {
	return c.onNode(ctx, "NodeStageVolume", func(n csi.NodeClient) error {
		_, err := n.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
			VolumeId:          r.Handle,
			PublishContext:    r.PublishContext,
			StagingTargetPath: r.StagingPath,
			VolumeCapability:  c.nodeCapability(r.Capability),
			Secrets:           reveal(r.Secrets),
			VolumeContext:     r.Context,
		})
		return err
	})
}

// NodeUnstage is NodeUnstageVolume.
func (c *Client) NodeUnstage(ctx context.Context, handle, stagingPath string) error {
	return c.onNode(ctx, "NodeUnstageVolume", func(n csi.NodeClient) error {
		_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: stagingPath})
		return err
	})
}

// NodePublish is NodePublishVolume.
func (c *Client) NodePublish(ctx context.Context, r csivol.PublishRequest) error {
	return c.onNode(ctx, "NodePublishVolume", func(n csi.NodeClient) error {
		_, err := n.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
			VolumeId:          r.Handle,
			PublishContext:    r.PublishContext,
			StagingTargetPath: r.StagingPath,
			TargetPath:        r.TargetPath,
			VolumeCapability:  c.nodeCapability(r.Capability),
			Readonly:          r.ReadOnly,
			Secrets:           reveal(r.Secrets),
			VolumeContext:     r.Context,
		})
		return err
	})
}

// NodeUnpublish is NodeUnpublishVolume.
func (c *Client) NodeUnpublish(ctx context.Context, handle, targetPath string) error {
	return c.onNode(ctx, "NodeUnpublishVolume", func(n csi.NodeClient) error {
		_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: targetPath})
		return err
	})
}

// NodeExpand is NodeExpandVolume.
func (c *Client) NodeExpand(ctx context.Context, r csivol.ExpandRequest) error {
	return c.onNode(ctx, "NodeExpandVolume", func(n csi.NodeClient) error {
		_, err := n.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
			VolumeId:          r.Handle,
			VolumePath:        r.VolumePath,
			StagingTargetPath: r.StagingPath,
			CapacityRange:     &csi.CapacityRange{RequiredBytes: r.Size},
			VolumeCapability:  c.nodeCapability(r.Capability),
			Secrets:           reveal(r.Secrets),
		})
		return err
	})
}

// ControllerPublish is ControllerPublishVolume.
func (c *Client) ControllerPublish(ctx context.Context, r csivol.AttachRequest) (published map[string]string, err error) {
	err = c.onController(ctx, "ControllerPublishVolume", func(s csi.ControllerClient) error {
		answer, err := s.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
			VolumeId:         r.Handle,
			NodeId:           r.NodeID,
			VolumeCapability: c.controllerCapability(r.Capability),
			Readonly:         r.ReadOnly,
			Secrets:          reveal(r.Secrets),
			VolumeContext:    r.Context,
		})
		published = answer.GetPublishContext()
		return err
	})
	return published, err
}

// ControllerUnpublish is ControllerUnpublishVolume.
func (c *Client) ControllerUnpublish(ctx context.Context, handle, nodeID string, secrets map[string]flex.Secret) error {
	return c.onController(ctx, "ControllerUnpublishVolume", func(s csi.ControllerClient) error {
		_, err := s.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: handle, NodeId: nodeID, Secrets: reveal(secrets)})
		return err
	})
}

// ControllerExpand is ControllerExpandVolume.
func (c *Client) ControllerExpand(ctx context.Context, r csivol.ExpandRequest) (onNode bool, err error) {
	err = c.onController(ctx, "ControllerExpandVolume", func(s csi.ControllerClient) error {
		answer, err := s.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId:         r.Handle,
			CapacityRange:    &csi.CapacityRange{RequiredBytes: r.Size},
			VolumeCapability: c.controllerCapability(r.Capability),
			Secrets:          reveal(r.Secrets),
		})
		onNode = answer.GetNodeExpansionRequired()
		return err
	})
	return onNode, err
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

func (c *Client) nodeCapability(capability csivol.Capability) *csi.VolumeCapability {
	c.mu.Lock()
	defer c.mu.Unlock()
	return toCSI(capability, c.features != nil && c.features.NodeSingleWriter)
}

func (c *Client) controllerCapability(capability csivol.Capability) *csi.VolumeCapability {
	c.mu.Lock()
	defer c.mu.Unlock()
	return toCSI(capability, c.features != nil && c.features.ControllerSingleWriter)
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
