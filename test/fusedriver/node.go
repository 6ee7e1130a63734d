package fusedriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// fsType is what the mount table says of a volume, after "fuse.".
const fsType = "flex2csi"

// node is the node service.
type node struct {
	csi.UnimplementedNodeServer
	dir, nodeID string
	mounter     mounter.Mounter

	mu sync.Mutex // one call at a time will do
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.nodeID}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	stage := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{
		{Type: &csi.NodeServiceCapability_Rpc{Rpc: stage}},
	}}, nil
}

func (n *node) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, path := r.GetVolumeId(), r.GetStagingTargetPath()
	if !isID(id) || !filepath.IsAbs(path) || r.GetVolumeCapability().GetMount() == nil {
		return nil, status.Error(codes.InvalidArgument, "a volume_id that can be a file's name, a staging_target_path and a mount capability are wanted")
	}
	switch mounted, err := alive(path); {
	case err != nil:
		return nil, err
	case mounted:
		return &csi.NodeStageVolumeResponse{}, nil
	}
	if err := n.serve(id, path); err != nil {
		return nil, status.Errorf(codes.Internal, "mount volume %s: %v", id, err)
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// serve mounts a volume at path and answers for it while this process lives.
func (n *node) serve(id, path string) error {
	data := filepath.Join(n.dir, id)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	root, err := fusefs.NewLoopbackRoot(data)
	if err != nil {
		return err
	}
	_, err = fusefs.Mount(path, root, &fusefs.Options{MountOptions: fuse.MountOptions{
		DirectMountStrict: true, AllowOther: true, FsName: id, Name: fsType,
	}})
	return err
}

func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, staging, path := r.GetVolumeId(), r.GetStagingTargetPath(), r.GetTargetPath()
	if !isID(id) || !filepath.IsAbs(staging) || !filepath.IsAbs(path) || r.GetVolumeCapability().GetMount() == nil {
		return nil, status.Error(codes.InvalidArgument, "a volume_id, a staging_target_path, a target_path and a mount capability are wanted")
	}
	staged, err := alive(staging)
	if err == nil && !staged {
		err = status.Errorf(codes.FailedPrecondition, "volume %s is not staged at %s", id, staging)
	}
	if err != nil {
		return nil, err
	}
	switch published, err := alive(path); {
	case err != nil:
		return nil, err
	case published:
		return &csi.NodePublishVolumeResponse{}, nil
	}
	var options []string
	if r.GetReadonly() {
		options = []string{"ro"}
	}
	if err := n.bind(ctx, staging, path, options); err != nil {
		return nil, status.Errorf(codes.Internal, "publish volume %s: %v", id, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) bind(ctx context.Context, source, path string, options []string) error {
	t, err := mounter.OpenTarget("", path)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Create(); err != nil {
		return err
	}
	if err := n.mounter.Bind(ctx, source, mounter.Roots{Below: []string{mounter.Anywhere}}, t, options, nil); err != nil {
		t.Discard()
		return err
	}
	return nil
}

func (n *node) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := n.remove(ctx, r.GetVolumeId(), r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeUnstageVolume ends the server, too: it ends with its last mount.
func (n *node) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := n.remove(ctx, r.GetVolumeId(), r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// remove unmounts what is at path, dead or alive, and removes the directory.
func (n *node) remove(ctx context.Context, id, path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !isID(id) || !filepath.IsAbs(path) {
		return status.Error(codes.InvalidArgument, "a volume_id and a path are wanted")
	}
	t, err := mounter.OpenTarget("", path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		defer t.Close()
		err = n.mounter.Unmount(ctx, t)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.Internal, "remove volume %s: %v", id, err)
	}
	return nil
}

// alive reports whether a volume is mounted at path. A dead server is an error.
func alive(path string) (bool, error) {
	var here, above unix.Stat_t
	err := unix.Stat(path, &here)
	if err == nil {
		err = unix.Stat(filepath.Dir(path), &above)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.ENOTCONN):
		return false, status.Errorf(codes.Internal, "what is mounted at %s is dead (%v): its driver has ended", path, err)
	case err != nil:
		return false, status.Errorf(codes.Internal, "look at %s: %v", path, err)
	}
	return here.Dev != above.Dev, nil
}

func isID(id string) bool {
	return id != "" && id != "." && id != ".." && !strings.Contains(id, "/")
}
