package driver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mountTimeout is when csi-driver-nfs and csi-driver-smb answer that a mount takes too long.
const mountTimeout = 110 * time.Second

// node is the node service.
type node struct {
	csi.UnimplementedNodeServer
	Kind
	nodeID string

	mu   sync.Mutex
	busy map[string]bool // volumes and paths at work
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.nodeID}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	has := map[csi.NodeServiceCapability_RPC_Type]bool{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:     n.Stage,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:       n.MountGroup,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true,
	}
	r := &csi.NodeGetCapabilitiesResponse{}
	for kind, is := range has {
		if is {
			r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: kind}}})
		}
	}
	return r, nil
}

func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if !n.Stage {
		return nil, status.Error(codes.Unimplemented, "this driver stages nothing")
	}
	v := volume{id: r.GetVolumeId(), context: r.GetVolumeContext(), secrets: r.GetSecrets(), capability: r.GetVolumeCapability().GetMount()}
	return &csi.NodeStageVolumeResponse{}, n.show(ctx, v, r.GetStagingTargetPath(), n.mount)
}

func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	v := volume{id: r.GetVolumeId(), context: r.GetVolumeContext(), secrets: r.GetSecrets(), capability: r.GetVolumeCapability().GetMount(), readOnly: r.GetReadonly()}
	mount := n.mount
	if n.Stage {
		staging := r.GetStagingTargetPath()
		if mounted, err := mountinfo.Mounted(staging); err != nil || !mounted {
			return nil, status.Errorf(codes.FailedPrecondition, "nothing is staged at %q (%v)", staging, err)
		}
		mount = func(ctx context.Context, v volume, dir string) error { return bind(ctx, staging, dir, v.readOnly) }
	}
	return &csi.NodePublishVolumeResponse{}, n.show(ctx, v, r.GetTargetPath(), mount)
}

// show mounts a volume, unless something is mounted there. A mount that takes too long is answered
// before it ends; until it has, calls for the volume and the path are refused.
func (n *node) show(ctx context.Context, v volume, path string, mount func(ctx context.Context, v volume, dir string) error) error {
	if v.id == "" || !filepath.IsAbs(path) || v.capability == nil {
		return status.Error(codes.InvalidArgument, "a volume_id, a path and a mount capability are required")
	}
	done, err := n.begin(v.id, path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		done()
		return status.Error(codes.Internal, err.Error())
	}
	if mounted, err := mountinfo.Mounted(path); err != nil || mounted {
		done()
		return err
	}
	ended := make(chan error, 1)
	go func() {
		defer done()
		ended <- mount(context.WithoutCancel(ctx), v, path)
	}()
	select {
	case err = <-ended:
	case <-time.After(mountTimeout):
		return status.Errorf(codes.DeadlineExceeded, "volume %s: no mount after %v", v.id, mountTimeout)
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	if err != nil && status.Code(err) == codes.Unknown {
		err = status.Errorf(codes.Internal, "volume %s: %v", v.id, err)
	}
	return err
}

// begin takes a volume and a path for one call.
func (n *node) begin(id, path string) (done func(), err error) {
	key := id + "@" + path
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy[key] {
		return nil, status.Errorf(codes.Aborted, "an operation for volume %s exists already", id)
	}
	n.busy[key] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.busy, key)
	}, nil
}

func (n *node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, n.hide(ctx, r.GetVolumeId(), r.GetTargetPath(), !n.Stage)
}

func (n *node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, n.hide(ctx, r.GetVolumeId(), r.GetStagingTargetPath(), true)
}

// hide unmounts what is at a path, and removes the directory.
func (n *node) hide(ctx context.Context, id, path string, last bool) error {
	if id == "" || !filepath.IsAbs(path) {
		return status.Error(codes.InvalidArgument, "a volume_id and a path are required")
	}
	done, err := n.begin(id, path)
	if err != nil {
		return err
	}
	defer done()
	// The mount table, since the storage may be silent.
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(path))
	for range mounts {
		err = errors.Join(err, run(ctx, nil, "umount", path))
	}
	if err == nil {
		err = os.Remove(path)
	}
	if (err == nil || errors.Is(err, fs.ErrNotExist)) && last && n.release != nil {
		err = n.release(ctx, id)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.Internal, "volume %s: %v", id, err)
	}
	return nil
}
