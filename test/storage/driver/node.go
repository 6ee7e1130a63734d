package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	mountutils "k8s.io/mount-utils"
)

// mountTimeout is when csi-driver-nfs and csi-driver-smb answer that a mount takes too long. It goes
// on, and the call that follows mounts once more.
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
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME:            n.expand != nil,
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
	v := volume{
		id: r.GetVolumeId(), context: r.GetVolumeContext(), secrets: r.GetSecrets(),
		capability: r.GetVolumeCapability().GetMount(), mode: r.GetVolumeCapability().GetAccessMode().GetMode(),
	}
	return &csi.NodeStageVolumeResponse{}, n.mountOnce(ctx, v, n.staged(v.id, r.GetStagingTargetPath()))
}

// staged is where a volume is mounted that is staged at a path.
func (n *node) staged(id, path string) string {
	if n.Below && path != "" {
		return path + "/" + id
	}
	return path
}

func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	v := volume{id: r.GetVolumeId(), context: r.GetVolumeContext(), secrets: r.GetSecrets(), capability: r.GetVolumeCapability().GetMount(), readOnly: r.GetReadonly()}
	if !n.Stage {
		return &csi.NodePublishVolumeResponse{}, n.mountOnce(ctx, v, r.GetTargetPath())
	}
	switch r.GetVolumeCapability().GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		v.readOnly = true
	}
	v.readOnly = v.readOnly || slices.Contains(v.capability.GetMountFlags(), "ro")
	return &csi.NodePublishVolumeResponse{}, n.show(ctx, v, r.GetTargetPath(), func() error {
		// Whatever is there: the directory of the node, if nothing is staged.
		return bind(context.WithoutCancel(ctx), n.staged(v.id, r.GetStagingTargetPath()), r.GetTargetPath(), v.readOnly)
	})
}

// mountOnce mounts a volume from its storage, unless the same is under way.
func (n *node) mountOnce(ctx context.Context, v volume, path string) error {
	done, err := n.begin(v.id, path)
	if err != nil {
		return err
	}
	defer done()
	return n.show(ctx, v, path, func() error {
		ended := make(chan error, 1)
		go func() { ended <- n.mount(context.WithoutCancel(ctx), v, path) }()
		select {
		case err := <-ended:
			return err
		case <-time.After(mountTimeout):
			return fmt.Errorf("mount volume %s to %s timeout after %v", v.id, path, mountTimeout)
		}
	})
}

// show has something mounted at a path, unless it is.
func (n *node) show(ctx context.Context, v volume, path string, mount func() error) error {
	if v.id == "" || !filepath.IsAbs(path) || v.capability == nil {
		return status.Error(codes.InvalidArgument, "a volume_id, a path and a mount capability are required")
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	mounted, err := isMounted(path)
	if err == nil && mounted && n.intact != nil && !n.intact(path) {
		mounted, err = false, run(context.WithoutCancel(ctx), "umount", path)
	}
	if err == nil && !mounted {
		err = mount()
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
	if n.Stage {
		return &csi.NodeUnpublishVolumeResponse{}, n.hide(ctx, r.GetVolumeId(), r.GetTargetPath())
	}
	return &csi.NodeUnpublishVolumeResponse{}, n.unmountOnce(ctx, r.GetVolumeId(), r.GetTargetPath(), nil)
}

func (n *node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	staging := r.GetStagingTargetPath()
	return &csi.NodeUnstageVolumeResponse{}, n.unmountOnce(ctx, r.GetVolumeId(), n.staged(r.GetVolumeId(), staging), func() error {
		if n.release == nil {
			return nil
		}
		return n.release(context.WithoutCancel(ctx), staging)
	})
}

// unmountOnce ends the use of a volume's storage, unless a call for the same is under way.
func (n *node) unmountOnce(ctx context.Context, id, path string, release func() error) error {
	done, err := n.begin(id, path)
	if err != nil {
		return err
	}
	defer done()
	if err := n.hide(ctx, id, path); err != nil || release == nil {
		return err
	}
	return release()
}

func (n *node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if n.expand == nil {
		return nil, status.Error(codes.Unimplemented, "this driver expands nothing")
	}
	v, staging := volume{id: r.GetVolumeId(), capability: r.GetVolumeCapability().GetMount()}, r.GetStagingTargetPath()
	done, err := n.begin(v.id, n.staged(v.id, staging))
	if err != nil {
		return nil, err
	}
	defer done()
	// Like ceph-csi it does not say how large the volume is.
	return &csi.NodeExpandVolumeResponse{}, n.expand(context.WithoutCancel(ctx), v, staging)
}

// hide unmounts what is at a path, and removes the directory. It looks at the path, as
// k8s.io/mount-utils does, and so waits where the storage is silent, with or without its caller.
func (n *node) hide(ctx context.Context, id, path string) error {
	if id == "" || !filepath.IsAbs(path) {
		return status.Error(codes.InvalidArgument, "a volume_id and a path are required")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	mounted, err := isMounted(path)
	if err == nil && mounted {
		err = n.unmount(context.WithoutCancel(ctx), path)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.Internal, "failed to unmount target %q: %v", path, err)
	}
	return nil
}

// isMounted reports whether something is mounted at a path. What only a dead mount answers is
// taken for one.
func isMounted(path string) (bool, error) {
	mounted, err := mountinfo.Mounted(path)
	if mountutils.IsCorruptedMnt(err) {
		return true, nil
	}
	return mounted, err
}

// forceAfter is when csi-driver-nfs takes an unmount for one that hangs.
const forceAfter = 30 * time.Second

func (n *node) unmount(ctx context.Context, path string) error {
	if !n.Force {
		return run(ctx, "umount", path)
	}
	limited, cancel := context.WithTimeout(ctx, forceAfter)
	defer cancel()
	err := run(limited, "umount", path)
	if limited.Err() != nil {
		err = run(ctx, "umount", "-f", path)
	}
	return err
}
