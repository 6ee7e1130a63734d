package csidriver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type node struct {
	csi.UnimplementedNodeServer
	*Driver
}

func (n node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	}
	if !n.NoStage {
		types = append(types, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if n.Expansion != ExpandNever {
		types = append(types, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	if n.MountGroup {
		types = append(types, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	if !n.OldModes {
		types = append(types, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	}
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range types {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return answer, nil
}

func (n node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.NodeID, MaxVolumesPerNode: n.MaxVolumes}, nil
}

// A nodeRequest is what NodeStageVolume and NodePublishVolume have in common.
type nodeRequest interface {
	GetVolumeId() string
	GetVolumeCapability() *csi.VolumeCapability
	GetPublishContext() map[string]string
	GetVolumeContext() map[string]string
	GetSecrets() map[string]string
}

// admitted is what a volume may be used as.
type admitted struct {
	*volumeRecord
	capability
	readOnly bool
}

// admit looks at everything that comes along with a volume that is there.
func (n node) admit(v *volumeRecord, r nodeRequest) (*admitted, error) {
	c, err := n.capability(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	a := &admitted{volumeRecord: v, capability: c, readOnly: c.readOnly()}
	if err := v.checkContext(r.GetVolumeContext()); err != nil {
		return nil, err
	}
	if v.Ephemeral {
		return a, nil
	}
	if !n.Attach {
		if len(r.GetPublishContext()) > 0 {
			return nil, status.Error(codes.InvalidArgument, "publish_context is for drivers that have the capability PUBLISH_UNPUBLISH_VOLUME")
		}
		return a, nil
	}
	p, ok := v.Publications[n.NodeID]
	switch {
	case !ok:
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not attached to node %s: ControllerPublishVolume comes first", v.ID, n.NodeID)
	case r.GetPublishContext()[contextToken] != p.Token:
		return nil, status.Errorf(codes.FailedPrecondition, "the publish_context is not that which ControllerPublishVolume returned for volume %s and node %s", v.ID, n.NodeID)
	}
	a.readOnly = a.readOnly || p.ReadOnly
	return a, nil
}

// Keys of a volume's context that have NodeStageVolume, or NodePublishVolume
// of a driver that does not stage, look at its secrets. The first names a
// secret that has to be there, the second is the SHA-256 of the secret
// "password", in hex.
const (
	requireSecret  = "requireSecret"
	passwordSHA256 = "passwordSHA256"
)

// checkSecrets never says what it was given.
func checkSecrets(r nodeRequest) error {
	if name := r.GetVolumeContext()[requireSecret]; name != "" && r.GetSecrets()[name] == "" {
		return status.Errorf(codes.Unauthenticated, "the secret %s is missing", name)
	}
	want := r.GetVolumeContext()[passwordSHA256]
	if want == "" {
		return nil
	}
	password, ok := r.GetSecrets()["password"]
	if !ok {
		return status.Error(codes.Unauthenticated, "the secret password is missing")
	}
	sum := sha256.Sum256([]byte(password))
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(want)) != 1 {
		return status.Error(codes.PermissionDenied, "the secret password is wrong")
	}
	return nil
}
