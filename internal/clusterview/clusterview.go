// Package clusterview is what those who look after a cluster want to know of it,
// flex2csi doctor and the sweeper of attachments, as plain structs: internal/kube
// reads it from the API server, and nobody else has to know how.
package clusterview

import (
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// A Node is one node of the cluster.
type Node struct {
	Name           string
	KubeletVersion string // v1.37.1
	Ready          bool
	// OutOfService: somebody has declared it dead (node.kubernetes.io/out-of-service).
	OutOfService bool
	// VolumesInUse are the unique names that the kubelet says it uses.
	VolumesInUse []string
	// VolumesAttached are those that the control plane says it has attached.
	VolumesAttached []string
	// Devices are what attach has answered, by the names of VolumesAttached.
	Devices map[string]string
}

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

// A Pod is one that the API server knows of.
type Pod struct {
	Namespace, Name string
	// UIDs are those by which the kubelet may call it: a static pod has another
	// one there (annotation kubernetes.io/config.hash).
	UIDs []string
	Node string
	// Terminating: somebody has asked for its end. Finished: no container of it
	// runs, or will.
	Terminating, Finished bool
	// Claims are the names of its claims, FlexVolumes its inline ones.
	Claims      []string
	FlexVolumes []FlexVolume
}

// A FlexVolume is one that a pod has without a PersistentVolume.
type FlexVolume struct{ Driver, Name string }

// Kubelet is what matters here of the configuration that a kubelet runs with.
type Kubelet struct {
	VolumePluginDir              string
	EnableControllerAttachDetach bool
}
