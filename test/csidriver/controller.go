package csidriver

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type controller struct {
	csi.UnimplementedControllerServer
	*Driver
}

func (c controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	types := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	}
	if c.Attach {
		types = append(types, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
			csi.ControllerServiceCapability_RPC_PUBLISH_READONLY, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	if c.Expansion != ExpandNever {
		types = append(types, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	}
	if !c.OldModes {
		types = append(types, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range types {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return answer, nil
}

// volume returns a volume that there is.
func (d *Driver) volume(id string) (*volumeRecord, error) {
	if err := missing(field("volume_id", id)); err != nil {
		return nil, err
	}
	v, err := d.store.volume(id)
	if err != nil {
		return nil, answer(err)
	}
	if v == nil {
		return nil, noVolume(id)
	}
	return v, nil
}

func (c controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := missing(field("volume_id", r.GetVolumeId())); err != nil {
		return nil, err
	}
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	}
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	err = c.capabilities(r.GetVolumeCapabilities())
	if err == nil {
		err = v.checkContext(r.GetVolumeContext())
	}
	if err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      r.GetVolumeContext(),
		VolumeCapabilities: r.GetVolumeCapabilities(),
		Parameters:         r.GetParameters(),
	}}, nil
}

// Keys with this prefix are the caller's additions to a volume's context.
const kubernetesPrefix = "csi.storage.k8s.io/"

// checkContext wants what the volume was made with, unchanged; more may be
// there, less may not. None at all passes: the field is optional.
func (v *volumeRecord) checkContext(context map[string]string) error {
	own := 0
	for k := range context {
		if !strings.HasPrefix(k, kubernetesPrefix) {
			own++
		}
	}
	for k, want := range v.Parameters {
		if got, ok := context[k]; own > 0 && (!ok || got != want) {
			return status.Errorf(codes.InvalidArgument, "volume_context is not that of volume %s: key %s is missing or another", v.ID, k)
		}
	}
	return nil
}

func (c controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	ids, next, err := c.page(r.GetMaxEntries(), r.GetStartingToken())
	if err != nil {
		return nil, err
	}
	answer := &csi.ListVolumesResponse{NextToken: next}
	for _, id := range ids {
		v, err := c.store.volume(id)
		if err != nil || v == nil || v.Ephemeral {
			continue // deleted meanwhile, or ephemeral
		}
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.describe(v),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: v.publishedAt()},
		})
	}
	return answer, nil
}

// A token names the last volume of the page before, which may be gone by now.
const tokenPrefix = "after:"

// page returns the ids of one page, and the token of the next.
func (c controller) page(most int32, token string) (ids []string, next string, err error) {
	after, ok := strings.CutPrefix(token, tokenPrefix)
	switch {
	case token != "" && !ok:
		return nil, "", status.Errorf(codes.Aborted, "starting_token %q was never given out; start again without one", token)
	case most < 0:
		return nil, "", status.Error(codes.InvalidArgument, "max_entries is negative")
	}
	ids, err = c.store.volumeIDs()
	if err != nil {
		return nil, "", answer(err)
	}
	start, found := slices.BinarySearch(ids, after)
	if found {
		start++
	}
	ids = ids[start:]
	if most > 0 && len(ids) > int(most) {
		ids = ids[:most]
		next = tokenPrefix + ids[most-1]
	}
	return ids, next, nil
}

func (v *volumeRecord) publishedAt() []string {
	var nodes []string
	for node := range v.Publications {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	return nodes
}

func (d *Driver) describe(v *volumeRecord) *csi.Volume {
	return &csi.Volume{VolumeId: v.ID, CapacityBytes: d.capacity(v.ID), VolumeContext: v.Parameters}
}

func (c controller) ControllerGetVolume(_ context.Context, r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: c.describe(v),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: v.publishedAt()},
	}, nil
}

// GetCapacity is what the directory's filesystem has left, and nothing for
// what cannot be had. Images are sparse, so more may be promised.
func (c controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	possible := len(r.GetVolumeCapabilities()) == 0 || c.capabilities(r.GetVolumeCapabilities()) == nil
	if !possible {
		return &csi.GetCapacityResponse{}, nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(c.Dir, &fs); err != nil {
		return nil, answer(err)
	}
	return &csi.GetCapacityResponse{AvailableCapacity: int64(min(fs.Bavail*uint64(fs.Bsize), math.MaxInt64))}, nil
}
