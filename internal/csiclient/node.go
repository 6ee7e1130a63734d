package csiclient

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// NodeStage is NodeStageVolume.
func (c *Client) NodeStage(ctx context.Context, r csivol.StageRequest) error {
	return c.onNode(ctx, "NodeStageVolume", func(n csi.NodeClient, f csivol.Features) error {
		_, err := n.NodeStageVolume(ctx, NodeStageRequest(r, f))
		return err
	})
}

// NodeUnstage is NodeUnstageVolume.
func (c *Client) NodeUnstage(ctx context.Context, handle, stagingPath string) error {
	return c.onNode(ctx, "NodeUnstageVolume", func(n csi.NodeClient, _ csivol.Features) error {
		_, err := n.NodeUnstageVolume(ctx, NodeUnstageRequest(handle, stagingPath))
		return err
	})
}

// NodePublish is NodePublishVolume.
func (c *Client) NodePublish(ctx context.Context, r csivol.PublishRequest) error {
	return c.onNode(ctx, "NodePublishVolume", func(n csi.NodeClient, f csivol.Features) error {
		_, err := n.NodePublishVolume(ctx, NodePublishRequest(r, f))
		return err
	})
}

// NodeUnpublish is NodeUnpublishVolume.
func (c *Client) NodeUnpublish(ctx context.Context, handle, targetPath string) error {
	return c.onNode(ctx, "NodeUnpublishVolume", func(n csi.NodeClient, _ csivol.Features) error {
		_, err := n.NodeUnpublishVolume(ctx, NodeUnpublishRequest(handle, targetPath))
		return err
	})
}

// NodeExpand is NodeExpandVolume. If no controller has grown the volume, the answer must
// have the requested size. Otherwise drivers may report the size of the filesystem,
// which is smaller.
func (c *Client) NodeExpand(ctx context.Context, r csivol.ExpandRequest) error {
	var size int64
	err := c.onNode(ctx, "NodeExpandVolume", func(n csi.NodeClient, f csivol.Features) error {
		answer, err := n.NodeExpandVolume(ctx, NodeExpandRequest(r, f))
		size = answer.GetCapacityBytes()
		return err
	})
	if err != nil || !r.OnNodeOnly {
		return err
	}
	return requireSize("NodeExpandVolume", size, r.Size)
}

// NodeStats is NodeGetVolumeStats.
func (c *Client) NodeStats(ctx context.Context, handle, volumePath, stagingPath string) (stats csivol.Stats, err error) {
	err = c.onNode(ctx, "NodeGetVolumeStats", func(n csi.NodeClient, _ csivol.Features) error {
		answer, err := n.NodeGetVolumeStats(ctx, nodeStatsRequest(handle, volumePath, stagingPath))
		for _, u := range answer.GetUsage() {
			usage := csivol.Usage{Total: u.GetTotal(), Used: u.GetUsed(), Available: u.GetAvailable()}
			switch u.GetUnit() {
			case csi.VolumeUsage_BYTES:
				stats.Bytes = usage
			case csi.VolumeUsage_INODES:
				stats.Inodes = usage
			case csi.VolumeUsage_UNKNOWN:
			}
		}
		return err
	})
	return stats, err
}

// ControllerPublish is ControllerPublishVolume.
func (c *Client) ControllerPublish(ctx context.Context, r csivol.AttachRequest) (published map[string]string, err error) {
	err = c.onController(ctx, "ControllerPublishVolume", func(s csi.ControllerClient, f csivol.Features) error {
		answer, err := s.ControllerPublishVolume(ctx, ControllerPublishRequest(r, f))
		published = answer.GetPublishContext()
		return err
	})
	return published, err
}

// ControllerUnpublish is ControllerUnpublishVolume.
func (c *Client) ControllerUnpublish(ctx context.Context, handle, nodeID string, secrets map[string]flex.Secret) error {
	return c.onController(ctx, "ControllerUnpublishVolume", func(s csi.ControllerClient, _ csivol.Features) error {
		_, err := s.ControllerUnpublishVolume(ctx, ControllerUnpublishRequest(handle, nodeID, secrets))
		return err
	})
}

// ControllerExpand is ControllerExpandVolume. A success with less than the requested size
// is an error: the kubelet would write the size into the claim.
func (c *Client) ControllerExpand(ctx context.Context, r csivol.ExpandRequest) (onNode bool, err error) {
	var size int64
	err = c.onController(ctx, "ControllerExpandVolume", func(s csi.ControllerClient, f csivol.Features) error {
		answer, err := s.ControllerExpandVolume(ctx, ControllerExpandRequest(r, f))
		onNode, size = answer.GetNodeExpansionRequired(), answer.GetCapacityBytes()
		return err
	})
	if err == nil {
		err = requireSize("ControllerExpandVolume", size, r.Size)
	}
	return onNode, err
}

func requireSize(method string, size, want int64) error {
	if size <= 0 || size >= want { // some drivers do not tell
		return nil
	}
	return &csivol.RPCError{Method: method, Code: flex.CodeInternal, Message: fmt.Sprintf("the driver reported success with %d bytes, and was asked for %d", size, want)}
}
