package main

import (
	"context"
	"path"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	computev1 "google.golang.org/api/compute/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	gce "sigs.k8s.io/gcp-compute-persistent-disk-csi-driver/pkg/gce-cloud-provider/compute"
	"sigs.k8s.io/gcp-compute-persistent-disk-csi-driver/pkg/gce-cloud-provider/metadata"
)

// newCloud returns the driver's fake cloud with one virtual machine, this node,
// to which the disks are attached that were so when the last driver ended.
func newCloud(attached []string) (*gce.FakeCloudProvider, error) {
	cloud, err := gce.CreateFakeCloudProvider(metadata.FakeProject, metadata.FakeZone, nil)
	if err != nil {
		return nil, err
	}
	node := &computev1.Instance{Name: metadata.FakeName}
	for _, disk := range attached {
		node.Disks = append(node.Disks, &computev1.AttachedDisk{DeviceName: disk, Mode: "READ_WRITE"})
	}
	cloud.InsertInstance(node, metadata.FakeZone, metadata.FakeName)
	return cloud, nil
}

// follower has the node's devices follow what the cloud does.
type follower struct {
	// mu serialises calls of the controller service: the fake cloud is a few
	// maps without a lock.
	mu      sync.Mutex
	devices *devices
}

func (f *follower) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !strings.HasPrefix(info.FullMethod, "/csi.v1.Controller/") {
		return handler(ctx, req)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	switch r := req.(type) {
	case *csi.ControllerPublishVolumeRequest:
		err = f.devices.attach(path.Base(r.GetVolumeId()))
	case *csi.ControllerUnpublishVolumeRequest:
		err = f.devices.detach(path.Base(r.GetVolumeId()))
	case *csi.ControllerExpandVolumeRequest:
		err = f.devices.resize(path.Base(r.GetVolumeId()), answer.(*csi.ControllerExpandVolumeResponse).GetCapacityBytes())
	}
	if err != nil {
		return nil, status.Errorf(codes.Internal, "the node's disks do not follow the cloud: %v", err)
	}
	return answer, nil
}
