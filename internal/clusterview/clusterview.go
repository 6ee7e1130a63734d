// Package clusterview is what those who look after a cluster want to know of it,
// flex2csi doctor and the sweeper of attachments, as plain structs: internal/kube
// reads it from the API server, and nobody else has to know how.
package clusterview

import "github.com/flex2csi/flex2csi/internal/csivol"

// A Driver is a CSIDriver object.
type Driver struct {
	Name string
	csivol.DriverInfo
}

// A NodeDriver is a driver's entry in the CSINode object of a node.
type NodeDriver struct {
	Name, NodeID string
	// Limit is how many volumes of the driver may be attached; nil: any number.
	Limit *int32
}

// Kubelet is what matters here of the configuration that a kubelet runs with.
type Kubelet struct {
	VolumePluginDir              string
	EnableControllerAttachDetach bool
}
