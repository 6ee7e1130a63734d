package csidriver

import (
	"context"
	"maps"
	"math"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	defaultCapacity = 1 << 30
	// ext4 needs no less; other filesystems say what they need when they are
	// made.
	leastCapacity = 1 << 20
	sectorSize    = 512
)

// chooseCapacity is the least that a caller asks for.
func chooseCapacity(r *csi.CapacityRange) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	if required < 0 || limit < 0 || limit > 0 && limit < required {
		return 0, status.Errorf(codes.InvalidArgument, "capacity_range: required_bytes %d and limit_bytes %d contradict each other", required, limit)
	}
	size := required
	if size == 0 {
		size = defaultCapacity
		if limit > 0 {
			size = min(size, limit/sectorSize*sectorSize)
		}
	}
	size = max(size, leastCapacity)
	if size > math.MaxInt64-sectorSize {
		return 0, status.Errorf(codes.OutOfRange, "a volume of %d bytes is larger than any disk", size)
	}
	size = (size + sectorSize - 1) / sectorSize * sectorSize
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "the smallest volume that would do has %d bytes, more than limit_bytes %d", size, limit)
	}
	return size, nil
}

// fits reports whether a volume of this size is what the range asks for.
func fits(size int64, r *csi.CapacityRange) bool {
	return size >= r.GetRequiredBytes() && (r.GetLimitBytes() == 0 || size <= r.GetLimitBytes())
}

// capacity is the length of a volume's image; 0 if it is gone.
func (d *Driver) capacity(id string) int64 {
	info, err := os.Stat(d.store.image(id))
	if err != nil {
		return 0
	}
	return info.Size()
}

func (c controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := missing(field("name", r.GetName())); err != nil {
		return nil, err
	}
	if err := c.capabilities(r.GetVolumeCapabilities()); err != nil {
		return nil, err
	}
	if r.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "volumes cannot be made from snapshots or from other volumes")
	}
	size, err := chooseCapacity(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	id := volumeID(r.GetName())
	v, err := c.store.volume(id)
	if err != nil {
		return nil, answer(err)
	}
	if v == nil {
		v = &volumeRecord{ID: id, Name: r.GetName(), Parameters: r.GetParameters()}
		if err := c.create(ctx, v, size); err != nil {
			return nil, answer(err)
		}
		return &csi.CreateVolumeResponse{Volume: c.describe(v)}, nil
	}
	if has := c.capacity(id); v.Ephemeral || v.Name != r.GetName() || !maps.Equal(v.Parameters, r.GetParameters()) || !fits(has, r.GetCapacityRange()) {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s is there already, with %d bytes and perhaps other parameters", id, has)
	}
	return &csi.CreateVolumeResponse{Volume: c.describe(v)}, nil
}

// create makes the image and then the volume. An image without a volume is
// what a driver left that was killed here, so it goes.
func (d *Driver) create(ctx context.Context, v *volumeRecord, size int64) error {
	if err := remove(d.store.image(v.ID)); err != nil {
		return err
	}
	image, err := d.mounter.OpenImage(ctx, d.store.image(v.ID), size, anywhere())
	if err != nil {
		return err
	}
	defer image.Close()
	if err := d.makeDirectory(v.ID); err != nil {
		return err
	}
	if err := d.store.putVolume(v); err != nil {
		image.Remove()
		return err
	}
	return nil
}

func (c controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := missing(field("volume_id", r.GetVolumeId())); err != nil {
		return nil, err
	}
	if !isID(r.GetVolumeId()) {
		return &csi.DeleteVolumeResponse{}, nil
	}
	v, err := c.store.volume(r.GetVolumeId())
	if err != nil {
		return nil, answer(err)
	}
	if v != nil {
		if err := c.unused(ctx, v); err != nil {
			return nil, err
		}
	}
	return &csi.DeleteVolumeResponse{}, answer(c.store.deleteVolume(r.GetVolumeId()))
}

func (c controller) unused(ctx context.Context, v *volumeRecord) error {
	if len(v.Publications) > 0 {
		return status.Errorf(codes.FailedPrecondition, "volume %s is attached to %v", v.ID, v.publishedAt())
	}
	device, err := c.attachedTo(ctx, v.ID)
	if err != nil {
		return answer(err)
	}
	if device != "" {
		return status.Errorf(codes.FailedPrecondition, "volume %s is in use (%s)", v.ID, device)
	}
	return nil
}

// ControllerExpandVolume makes the disk larger; the filesystem follows on the
// node, or with the next NodeStageVolume.
func (c controller) ControllerExpandVolume(ctx context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := missing(field("volume_id", r.GetVolumeId())); err != nil {
		return nil, err
	}
	if c.Expansion == ExpandNever {
		return nil, status.Error(codes.Unimplemented, "this driver does not expand volumes")
	}
	if r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "capacity_range is missing")
	}
	size, err := chooseCapacity(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	v, err := c.volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetVolumeCapability() != nil {
		if _, err := c.capability(r.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	if err := c.grow(ctx, v, size); err != nil {
		return nil, answer(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: c.capacity(v.ID), NodeExpansionRequired: v.GrowFilesystem}, nil
}

// grow notes first that the filesystem has to follow: a driver that is killed
// in between looks once too often rather than once too rarely.
func (c controller) grow(ctx context.Context, v *volumeRecord, size int64) error {
	if c.capacity(v.ID) >= size {
		return nil
	}
	if c.Expansion == ExpandOffline {
		if err := c.unused(ctx, v); err != nil {
			return err
		}
	}
	image, err := c.mounter.OpenImage(ctx, c.store.image(v.ID), 0, anywhere())
	if err != nil {
		return err
	}
	defer image.Close()
	v.GrowFilesystem = true
	if err := c.store.putVolume(v); err != nil {
		return err
	}
	return c.mounter.Grow(ctx, image, size)
}
