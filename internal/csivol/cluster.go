package csivol

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// ErrNotBegun marks an attach that has left nothing behind.
var ErrNotBegun = errors.New("the attachment was not begun")

// An Attachment has the parameters of ControllerPublishVolume, without the values that
// only the API server and the external-attacher know.
type Attachment struct {
	Driver, Handle string
	Node           string // its name in Kubernetes
	FlexDriver     string // vendor/name
	Name           string // of the PersistentVolume
	Pod            Pod    // the first user; empty in attach

	Context     map[string]string
	FSType      string
	MountFlags  []string
	AccessModes []AccessMode // Attachable ones, never empty
	ReadOnly    bool
	// Secret is the controllerPublishSecretRef, which the external-attacher reads.
	Secret *SecretRef
	// KubeletHolds: the kubelet's CSI plugin has the volume staged on the node. It is
	// not detached until the plugin has unstaged it.
	KubeletHolds bool
	// Object is the name of the VolumeAttachment in a record; empty: that of Node. It is
	// another one if the node was renamed since.
	Object string
	// Request identifies the request of a record. A VolumeAttachment of flex2csi with another
	// one was made before the node was re-created, or before its records were lost. Keep:
	// the node has the volume all the same.
	Request string
	Keep    bool
}

// Key identifies the volume.
func (a *Attachment) Key() Key { return Key{Driver: a.Driver, Handle: a.Handle} }

// Attached is the result of an attach.
type Attached struct {
	// Object is the name of the VolumeAttachment.
	Object string
	// PublishContext is status.attachmentMetadata.
	PublishContext map[string]string
	// AttachedAsCSI says that the control plane has the volume attached as a CSI volume, too, and
	// detaches it when the kubelet's CSI plugin has unstaged it.
	AttachedAsCSI bool
	// Ours says that flex2csi has made the VolumeAttachment. Others are used, and never
	// deleted.
	Ours bool
	// Name is the PersistentVolume that ours was made for. Another one may have the
	// same volume.
	Name string
}

// A SecretRef names a Secret.
type SecretRef struct{ Namespace, Name string }

// A PersistentVolume has what the bridge needs of a PersistentVolume.
type PersistentVolume struct {
	Name        string       `json:"name"`
	UID         string       `json:"uid"`
	FlexDriver  string       `json:"flexDriver"` // empty: not a FlexVolume, or no longer
	Source      string       `json:"source"`     // see Source
	ReadOnly    bool         `json:"readOnly,omitempty"`
	AccessModes []AccessMode `json:"accessModes,omitempty"`
	// Claim is its claim; without a UID: it is not bound.
	Claim ObjectRef `json:"claim"`
	// Released: its claim was deleted.
	Released bool `json:"released,omitempty"`
	// CSI is the volume, if it is a CSI volume by now.
	CSI Key `json:"-"`
}

// Source returns a digest of the options and the fsType of a FlexVolume, for comparison.
// It is stored on disk, where the options must not be readable.
func Source(options map[string]string, fsType string) string {
	h := sha256.New()
	add := func(text string) { fmt.Fprintf(h, "%d:%s", len(text), text) }
	add(fsType)
	for _, key := range slices.Sorted(maps.Keys(options)) {
		add(key)
		add(options[key])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// An ObjectRef names a namespaced object.
type ObjectRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// A DriverInfo is the spec of a CSIDriver object.
type DriverInfo struct {
	AttachRequired, PodInfoOnMount, RequiresRepublish bool
	// FSGroupPolicy is File, None or ReadWriteOnceWithFSType.
	FSGroupPolicy storagev1.FSGroupPolicy
	// Tokens are the audiences for which the driver wants tokens of the pod's
	// service account.
	Tokens []TokenRequest
	// TokensInSecrets: they go into the secrets, not into the volume context
	// (serviceAccountTokenInSecrets).
	TokensInSecrets bool
}

// A TokenRequest is one of CSIDriver.spec.tokenRequests.
type TokenRequest struct {
	Audience   string
	Expiration time.Duration // zero: an hour
}

// An Event is one of Kubernetes, for people.
type Event struct {
	// Pod or, if not known, PersistentVolume is the object of the Event.
	Pod              Pod
	PersistentVolume string
	Volume           Key
	// Reason is in CamelCase: FailedAttachVolume, …
	Reason, Message string
}

// A PVState is the state of a volume that is mounted as a FlexVolume. The zero value is
// a PersistentVolume without changes.
type PVState struct {
	// Replaced describes the change of the PersistentVolume: it was deleted, or is a CSI
	// volume. Empty: it is a FlexVolume.
	Replaced string
	// Gone: there is no PersistentVolume of the name.
	Gone bool
	// Pod is the pod in question, if it exists and is not being deleted; else empty.
	// Known only if the PersistentVolume was replaced.
	Pod string
	// Next is another pod of the node that has, or will have, the same volume as a CSI
	// volume; empty: there is none.
	Next string
}
