package csidriver

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// patience is how long a call of one side waits for the other side's.
const patience = time.Second

// locked lets one call at a time work on a volume. A second one is not kept
// waiting: the CSI specification ("Concurrency") has it answered with ABORTED.
// Most drivers know that of the calls of one process, where controller and node
// are two. So the controller's and the node's wait for each other, for a while:
// external-attacher repeats ControllerPublishVolume whenever it likes.
func (s store) locked(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	id := changes(req)
	if id == "" {
		return handler(ctx, req)
	}
	unlockSide, err := lockName(s, path.Dir(info.FullMethod)+" "+id, 0)
	if err != nil {
		return nil, locking(id, err)
	}
	defer unlockSide()
	unlock, err := lockName(s, volumeLock(id), patience)
	if err != nil {
		return nil, locking(id, err)
	}
	defer unlock()
	if err := ctx.Err(); err != nil { // its caller left while it waited
		return nil, status.FromContextError(err).Err()
	}
	return handler(ctx, req)
}

// locking answers a call that cannot lock its volume.
func locking(id string, err error) error {
	if errors.Is(err, mounter.ErrBusy) {
		return status.Errorf(codes.Aborted, "an operation on volume %s is still in progress", id)
	}
	return status.Errorf(codes.Internal, "lock volume %s: %v", id, err)
}

// lockVolume locks the volume against all drivers that share the directory,
// or fails with mounter.ErrBusy.
func lockVolume(s store, id string) (unlock func(), err error) {
	return lockName(s, volumeLock(id), 0)
}

func volumeLock(id string) string { return "volume " + id }

// lockName tries it once, and then for as long as it may wait.
func lockName(s store, name string, wait time.Duration) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	f, err := mounter.LockName(ctx, s.lockFile(), name)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// changes returns the volume that a request changes, "" for those that only
// look.
func changes(req any) string {
	switch r := req.(type) {
	case *csi.CreateVolumeRequest:
		if r.GetName() == "" {
			return ""
		}
		return volumeID(r.GetName())
	case *csi.DeleteVolumeRequest,
		*csi.ControllerPublishVolumeRequest, *csi.ControllerUnpublishVolumeRequest, *csi.ControllerExpandVolumeRequest,
		*csi.NodeStageVolumeRequest, *csi.NodeUnstageVolumeRequest,
		*csi.NodePublishVolumeRequest, *csi.NodeUnpublishVolumeRequest, *csi.NodeExpandVolumeRequest:
		return r.(interface{ GetVolumeId() string }).GetVolumeId()
	}
	return ""
}
