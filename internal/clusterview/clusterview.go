// Package clusterview is what those who look after a cluster want to know of it,
// flex2csi doctor and the sweeper of attachments, as plain structs: internal/kube
// reads it from the API server, and nobody else has to know how.
package clusterview

import (
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

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

// An Attachment is a VolumeAttachment.
type Attachment struct {
	Name, Driver, Node string
	// Ours says that it has the label of flex2csi, FlexDriver and By what its
	// other marks say (package attachment).
	Ours           bool
	FlexDriver, By string
	// Pod is namespace/name of the pod that asked first; may be empty.
	Pod string
	// PersistentVolume is that of the annotation or of spec.source; may be empty.
	PersistentVolume string
	// Handle is that of spec.source.inlineVolumeSpec; may be empty.
	Handle string
	// AccessModes are those of spec.source.inlineVolumeSpec.
	AccessModes []csivol.AccessMode
	Attached    bool
	// AttachError and DetachError are the CSI driver's own words.
	AttachError, DetachError string
	Created                  time.Time
	// Deleted is when somebody asked for its end; zero: nobody.
	Deleted    time.Time
	Finalizers []string
}

// Kubelet is what matters here of the configuration that a kubelet runs with.
type Kubelet struct {
	VolumePluginDir              string
	EnableControllerAttachDetach bool
}
