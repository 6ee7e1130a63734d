package csidriver

import (
	"context"
	"crypto/rand"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The keys of publish_context. The token is another for each publication, so
// that a node notices one that is out of date.
const (
	contextDevice = "device"
	contextToken  = "token"
)

func (p publication) context(id string) map[string]string {
	return map[string]string{contextDevice: "disk-" + id, contextToken: p.Token}
}

func (c controller) ControllerPublishVolume(_ context.Context, r *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if !c.Attach {
		return nil, status.Error(codes.Unimplemented, "this driver does not attach volumes")
	}
	if err := missing(field("volume_id", r.GetVolumeId()), field("node_id", r.GetNodeId())); err != nil {
		return nil, err
	}
	want, err := c.capability(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if !c.store.knowsNode(r.GetNodeId()) {
		return nil, status.Errorf(codes.NotFound, "there is no node %s", r.GetNodeId())
	}
	if err := v.checkContext(r.GetVolumeContext()); err != nil {
		return nil, err
	}
	p := publication{ReadOnly: r.GetReadonly(), Capability: want, Token: rand.Text()}
	if old, ok := v.Publications[r.GetNodeId()]; ok {
		if old.ReadOnly != p.ReadOnly || !old.Capability.equal(p.Capability) {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is attached to node %s with another capability or readonly flag", v.ID, r.GetNodeId())
		}
		return &csi.ControllerPublishVolumeResponse{PublishContext: old.context(v.ID)}, nil
	}
	if err := c.mayAttach(v, r.GetNodeId(), want); err != nil {
		return nil, err
	}
	if v.Publications == nil {
		v.Publications = map[string]publication{}
	}
	v.Publications[r.GetNodeId()] = p
	if err := c.store.putVolume(v); err != nil {
		return nil, answer(err)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: p.context(v.ID)}, nil
}

// mayAttach heeds the access modes of the volume and the limit of the node.
func (c controller) mayAttach(v *volumeRecord, node string, want capability) error {
	for other, p := range v.Publications {
		if !want.multiNode() || !p.Capability.multiNode() {
			return status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s, and %s and %s do not allow two nodes", v.ID, other, p.Capability.Mode, want.Mode)
		}
	}
	if c.MaxVolumes == 0 {
		return nil
	}
	ids, err := c.store.volumeIDs()
	if err != nil {
		return answer(err)
	}
	var attached int64
	for _, id := range ids {
		if other, err := c.store.volume(id); err == nil && other != nil {
			if _, ok := other.Publications[node]; ok {
				attached++
			}
		}
	}
	if attached >= c.MaxVolumes {
		return status.Errorf(codes.ResourceExhausted, "node %s has %d volumes already, which is the most that it can have", node, attached)
	}
	return nil
}

// ControllerUnpublishVolume refuses while the node has the volume staged:
// what was not written back would be lost. Most drivers do not notice.
func (c controller) ControllerUnpublishVolume(ctx context.Context, r *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if !c.Attach {
		return nil, status.Error(codes.Unimplemented, "this driver does not attach volumes")
	}
	if err := missing(field("volume_id", r.GetVolumeId())); err != nil {
		return nil, err
	}
	done := &csi.ControllerUnpublishVolumeResponse{}
	v, err := c.store.volume(r.GetVolumeId())
	if err != nil || v == nil {
		return done, answer(err)
	}
	changed := false
	for _, node := range v.publishedAt() {
		if r.GetNodeId() != "" && r.GetNodeId() != node {
			continue // an empty node_id means all of them
		}
		if err := c.mayDetach(ctx, v, node); err != nil {
			return nil, err
		}
		delete(v.Publications, node)
		changed = true
	}
	if !changed {
		return done, nil
	}
	return done, answer(c.store.putVolume(v))
}

func (c controller) mayDetach(ctx context.Context, v *volumeRecord, node string) error {
	r, err := c.store.nodeVolume(node, v.ID)
	if err != nil {
		return answer(err)
	}
	if r.StagingPath == "" && len(r.Targets) == 0 {
		return nil
	}
	device, err := c.attachedTo(ctx, v.ID)
	if err != nil {
		return answer(err)
	}
	if device != "" {
		return status.Errorf(codes.FailedPrecondition, "volume %s is still staged or published at node %s (%s)", v.ID, node, device)
	}
	return nil
}
