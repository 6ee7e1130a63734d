package main

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"sigs.k8s.io/gcp-compute-persistent-disk-csi-driver/pkg/gce-cloud-provider/metadata"
	driver "sigs.k8s.io/gcp-compute-persistent-disk-csi-driver/pkg/gce-pd-csi-driver"
	mountmanager "sigs.k8s.io/gcp-compute-persistent-disk-csi-driver/pkg/mount-manager"

	"github.com/flex2csi/flex2csi/test/csidriver/serve"
)

// version is that of the driver in go.mod. A driver without one answers
// GetPluginInfo with UNAVAILABLE.
const version = "1.28.1"

// services are those of the driver.
type services struct {
	identity   *driver.GCEIdentityServer
	controller *driver.GCEControllerServer
	node       *driver.GCENodeServer
}

// run serves until ctx ends. Disks that are attached stay so, as those of a
// virtual machine do when the driver on it ends.
func (o *options) run(ctx context.Context) error {
	if err := o.complete(); err != nil {
		return err
	}
	disks := newDevices(o.dir)
	s, err := newServices(o.Name, disks)
	if err != nil {
		return err
	}
	for _, name := range o.disks {
		if err := s.addDisk(ctx, name); err != nil {
			return fmt.Errorf("make disk %s: %w", name, err)
		}
	}
	f := &follower{devices: disks}
	return serve.Run(ctx, &o.Options, func(g *grpc.Server) {
		csi.RegisterIdentityServer(g, s.identity)
		csi.RegisterControllerServer(g, s.controller)
		csi.RegisterNodeServer(g, s.node)
	}, f.intercept)
}

// newServices puts the driver together as its own main does, without what
// this machine lacks: a data cache, Kubernetes' API.
func newServices(name string, disks *devices) (*services, error) {
	cloud, err := newCloud(disks.attached())
	if err != nil {
		return nil, err
	}
	mounter, err := mountmanager.NewSafeMounter(1, time.Minute)
	if err != nil {
		return nil, err
	}
	d := driver.GetGCEDriver()
	s := &services{
		identity: driver.NewIdentityServer(d),
		controller: driver.NewControllerServer(d, cloud, 0, time.Minute, nil, false, false,
			driver.MultiZoneVolumeHandleConfig{}, driver.ListVolumesConfig{}, driver.ProvisionableDisksConfig{}, false, &driver.GCEControllerServerArgs{}),
		node: driver.NewNodeServer(d, mounter, disks, metadata.NewFakeService(), mountmanager.NewStatter(mounter),
			&driver.NodeServerArgs{EnableDeviceInUseCheck: true, SysfsPath: "/sys"}),
	}
	return s, d.SetupGCEDriver(name, version, nil, nil, s.identity, s.controller, s.node)
}

// addDisk has the cloud make a disk.
func (s *services) addDisk(ctx context.Context, name string) error {
	_, err := s.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name:       name,
		Parameters: map[string]string{"type": "pd-standard"},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
	})
	return err
}
