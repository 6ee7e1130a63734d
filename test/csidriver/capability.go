package csidriver

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// capability is a csi.VolumeCapability of a mounted volume, as it is written
// down to be compared with a later one.
type capability struct {
	Mode       string   `json:"mode"`
	FSType     string   `json:"fsType,omitempty"`
	MountFlags []string `json:"mountFlags,omitempty"`
	MountGroup string   `json:"mountGroup,omitempty"`
}

func (c capability) equal(d capability) bool {
	return c.Mode == d.Mode && c.FSType == d.FSType && c.MountGroup == d.MountGroup && slices.Equal(c.MountFlags, d.MountFlags)
}

func (c capability) is(modes ...csi.VolumeCapability_AccessMode_Mode) bool {
	return slices.ContainsFunc(modes, func(m csi.VolumeCapability_AccessMode_Mode) bool { return m.String() == c.Mode })
}

func (c capability) readOnly() bool {
	return c.is(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)
}

func (c capability) multiNode() bool {
	return c.is(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)
}

// capability checks the capability of a request. All access modes work: all nodes are
// this machine, and its kernel has one superblock for all.
func (c *Config) capability(v *csi.VolumeCapability) (capability, error) {
	mode := v.GetAccessMode().GetMode()
	switch {
	case v == nil:
		return capability{}, status.Error(codes.InvalidArgument, "volume_capability is missing")
	case v.GetBlock() != nil:
		return capability{}, status.Error(codes.InvalidArgument, "block volumes are not supported")
	case v.GetMount() == nil:
		return capability{}, status.Error(codes.InvalidArgument, "volume_capability has no access_type")
	case mode == csi.VolumeCapability_AccessMode_UNKNOWN:
		return capability{}, status.Error(codes.InvalidArgument, "volume_capability has no access_mode")
	case v.GetMount().GetVolumeMountGroup() != "" && !c.MountGroup:
		return capability{}, status.Error(codes.InvalidArgument, "volume_mount_group is for drivers that have the capability VOLUME_MOUNT_GROUP")
	}
	got := capability{
		Mode:       mode.String(),
		FSType:     v.GetMount().GetFsType(),
		MountFlags: v.GetMount().GetMountFlags(),
		MountGroup: v.GetMount().GetVolumeMountGroup(),
	}
	if c.OldModes && got.is(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER) {
		return capability{}, status.Errorf(codes.InvalidArgument, "access mode %s is for drivers that have the capability SINGLE_NODE_MULTI_WRITER", mode)
	}
	return got, nil
}

func (c *Config) capabilities(list []*csi.VolumeCapability) error {
	if len(list) == 0 {
		return status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	}
	for _, v := range list {
		if _, err := c.capability(v); err != nil {
			return err
		}
	}
	return nil
}

// severalTargets reports whether a volume may be published at more than one
// path of a node (CSI specification, the tables of NodePublishVolume).
func (c *Config) severalTargets(want capability) bool {
	return want.multiNode() || want.is(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER) ||
		c.OldModes && want.is(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
}
