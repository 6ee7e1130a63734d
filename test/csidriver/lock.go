package csidriver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// locked lets one call at a time work on a volume. A second one is not kept
// waiting: the CSI specification ("Concurrency") has it answered with ABORTED.
func (s store) locked(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	id := changes(req)
	if id == "" {
		return handler(ctx, req)
	}
	unlock, err := lockVolume(s, id)
	if errors.Is(err, mounter.ErrBusy) {
		return nil, status.Errorf(codes.Aborted, "an operation on volume %s is still in progress", id)
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "lock volume %s: %v", id, err)
	}
	defer unlock()
	return handler(ctx, req)
}

// lockVolume locks the volume against all drivers that share the directory,
// or fails with mounter.ErrBusy.
func lockVolume(s store, id string) (unlock func(), err error) {
	once, cancel := context.WithCancel(context.Background())
	cancel() // one try
	f, err := mounter.LockName(once, s.lockFile(), "volume "+id)
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
