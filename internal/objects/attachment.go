package objects

// This file has the names, labels and annotations of flex2csi's
// VolumeAttachments. The code that makes, sweeps and shows them and the policies
// in install/rbac agree on them.

import (
	"crypto/sha256"
	"fmt"
)

// Labels. A value that is too long for a label is replaced by its hash
// ([LabelValue]); the annotation of the same name has all of it.
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
	// RequestAnnotation is the request of the node's record; attach:false.
	RequestAnnotation = "flex2csi.io/request"
)

// DevicePrefix begins the device that attach returns. kube-controller-manager
// writes it to status.volumesAttached of the node.
const DevicePrefix = "csi:"

// AttachmentName returns the name that the control plane gives to the attachment of a CSI
// volume. So a volume has one attachment on a node, and the control plane adopts
// it when the PersistentVolume becomes a CSI one (Kubernetes v1.37.1,
// pkg/volume/csi/csi_attacher.go, getAttachmentName).
func AttachmentName(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// VolumeID is the value of VolumeLabel: one for all attachments of a volume.
func VolumeID(driver, handle string) string {
	return hash(driver + "/" + handle)
}

// maxLabelValue is LabelValueMaxLength of k8s.io/apimachinery/pkg/util/validation.
const maxLabelValue = 63

// LabelValue returns name as the value of a label, or its hash if it is too long.
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
