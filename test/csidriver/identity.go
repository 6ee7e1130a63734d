package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

type identity struct {
	csi.UnimplementedIdentityServer
	*Config
}

func (i identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.Name, VendorVersion: i.Version}, nil
}

// Probe says nothing, which is ready.
func (i identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (i identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	caps := []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
	}}}
	kind := map[Expansion]csi.PluginCapability_VolumeExpansion_Type{
		ExpandOnline:  csi.PluginCapability_VolumeExpansion_ONLINE,
		ExpandOffline: csi.PluginCapability_VolumeExpansion_OFFLINE,
	}[i.Expansion]
	if i.Expansion != ExpandNever {
		caps = append(caps, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
			VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: kind},
		}})
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: caps}, nil
}
