// Package attachment says how VolumeAttachments of flex2csi are named and
// marked. Who makes them, sweeps them, shows them and confines them
// (install/rbac) has to agree on that.
package attachment

import (
	"crypto/sha256"
	"fmt"
)

// Labels. Values longer than a label may be are replaced by their hash
// ([LabelValue]); annotations of the same name have them whole.
const (
	// ManagedByLabel with the value ManagedBy is on all that flex2csi makes.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "flex2csi"
	// AttachedByLabel says who is responsible: AttachedByNode or AttachedByController.
	AttachedByLabel      = "flex2csi.io/attached-by"
	AttachedByNode       = "node"       // the daemon of the node; attach:false
	AttachedByController = "controller" // flex2csi controller; attach:true
	// NodeLabel is the name of the node, VolumeLabel [VolumeID].
	NodeLabel   = "flex2csi.io/node"
	VolumeLabel = "flex2csi.io/volume"
	// PersistentVolumeLabel is the name of the PersistentVolume.
	PersistentVolumeLabel = "flex2csi.io/persistent-volume"
)

// Annotations.
const (
	PersistentVolumeAnnotation = PersistentVolumeLabel
	FlexDriverAnnotation       = "flex2csi.io/flex-driver"
	// PodAnnotation is namespace/name of the pod that asked first; attach:false.
	PodAnnotation = "flex2csi.io/pod"
)

// DevicePrefix begins what attach answers as the device, which kube-controller-manager
// keeps in status.volumesAttached of the node.
const DevicePrefix = "csi:"

// Name is the one that the control plane gives to the attachment of a CSI
// volume: so there is one for a volume and a node whoever asks, and the control
// plane adopts it when the PersistentVolume becomes a CSI one (Kubernetes
// v1.37.1, pkg/volume/csi/csi_attacher.go, getAttachmentName).
func Name(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// VolumeID is the value of VolumeLabel: one for all attachments of a volume.
func VolumeID(driver, handle string) string {
	return hash(driver + "/" + handle)
}

// maxLabelValue is what a label's value may have
// (k8s.io/apimachinery/pkg/util/validation, LabelValueMaxLength).
const maxLabelValue = 63

// LabelValue makes a label's value of the name of an object, which may be longer.
func LabelValue(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	return hash(name)
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:16])
}
