package csivol

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ErrNotBegun marks an attempt to attach of which nothing is left, and that has
// to be undone in nothing.
var ErrNotBegun = errors.New("the attachment was not begun")

// An Attachment is a volume on a node as a VolumeAttachment says it: what
// ControllerPublishVolume wants, without the values that only the API server and
// the external-attacher know.
type Attachment struct {
	Driver, Handle string
	Node           string // its name in Kubernetes
	FlexDriver     string // vendor/name
	Name           string // of the PersistentVolume
	Pod            Pod    // for whom it is asked; empty in attach

	Context     map[string]string
	FSType      string
	MountFlags  []string
	AccessModes []AccessMode // Attachable ones, never empty
	ReadOnly    bool
	// Secret is the controllerPublishSecretRef, which the external-attacher reads.
	Secret *SecretRef
	// KubeletHolds: the kubelet's CSI plugin has the volume staged on the node. Until
	// it has let go, nobody detaches it.
	KubeletHolds bool
}

// Key names the volume.
func (a *Attachment) Key() Key { return Key{Driver: a.Driver, Handle: a.Handle} }

// Attached is what has become of an Attachment.
type Attached struct {
	// Object is the name of the VolumeAttachment.
	Object string
	// PublishContext is status.attachmentMetadata.
	PublishContext map[string]string
	// Lent says that the control plane has the volume attached as a CSI one, too, and
	// detaches it when the kubelet's CSI plugin does not hold it any more.
	Lent bool
	// Ours says that flex2csi has made it. What somebody else has made is used,
	// and never deleted.
	Ours bool
	// Name is the PersistentVolume that ours was made for: another one may be the
	// same volume.
	Name string
}

// A SecretRef names a Secret of Kubernetes.
type SecretRef struct{ Namespace, Name string }

// A PersistentVolume is what the bridge wants to know of one.
type PersistentVolume struct {
	Name        string       `json:"name"`
	UID         string       `json:"uid"`
	FlexDriver  string       `json:"flexDriver"` // empty: it is no FlexVolume (any more)
	Source      string       `json:"source"`     // see Source
	ReadOnly    bool         `json:"readOnly,omitempty"`
	AccessModes []AccessMode `json:"accessModes,omitempty"`
	// Claim is the one that it is bound to; without a UID: it is not bound.
	Claim ObjectRef `json:"claim"`
	// Released: its claim is gone.
	Released bool `json:"released,omitempty"`
	// CSI is the volume that it is by now, if it is a CSI volume.
	CSI Key `json:"-"`
}

// Source returns a digest of the options and the fsType of a FlexVolume. They are
// compared, and kept on disks, where they must not be readable.
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

// An ObjectRef names an object with a namespace.
type ObjectRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// A DriverInfo is the spec of a CSIDriver object.
type DriverInfo struct {
	AttachRequired, PodInfoOnMount, RequiresRepublish bool
	// FSGroupPolicy is File, None or ReadWriteOnceWithFSType.
	FSGroupPolicy string
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

// A Notice tells a person that something wants to be looked at; it becomes an
// Event of Kubernetes.
type Notice struct {
	// Pod or, where none is known, the PersistentVolume that it is about.
	Pod              Pod
	PersistentVolume string
	// Reason is a word in CamelCase: FailedAttachVolume, …
	Reason, Message string
}

// A Fate is what became of a volume that is mounted as a FlexVolume. The zero one
// is that nothing has.
type Fate struct {
	// Replaced says how its PersistentVolume is not what it was: it is gone, or a
	// CSI volume. Empty: it is a FlexVolume.
	Replaced string
	// Gone: there is no PersistentVolume of the name.
	Gone bool
	// Pod is the one that was asked about, if it is there and not about to end;
	// empty: it is not. Looked at only if the PersistentVolume was replaced.
	Pod string
	// Next is another pod of the node that has, or will have, the same volume as a
	// CSI one; empty: there is none.
	Next string
}
