// Package csivol has the structs that packages of the bridge exchange about volumes, so
// that internal/bridge depends on neither gRPC nor the API server.
//
// Names are those of the CSI specification, except volume_id: it is called volumeHandle,
// as in PersistentVolumes.
package csivol

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// AccessMode is an access mode of a PersistentVolume. The CSI access mode depends on the
// capabilities of the driver, too.
type AccessMode string

// The access modes of Kubernetes.
const (
	ReadWriteOnce    AccessMode = "ReadWriteOnce"
	ReadOnlyMany     AccessMode = "ReadOnlyMany"
	ReadWriteMany    AccessMode = "ReadWriteMany"
	ReadWriteOncePod AccessMode = "ReadWriteOncePod"
)

// OrUsual returns m, or the most common mode if m is not known: no callout has it, and
// the API server may be unavailable.
func (m AccessMode) OrUsual() AccessMode { return cmp.Or(m, ReadWriteOnce) }

// ModesOr returns the modes of the PersistentVolume, or the known one.
func ModesOr(all []AccessMode, one AccessMode) []AccessMode {
	if len(all) > 0 {
		return all
	}
	return []AccessMode{one.OrUsual()}
}

// Attachable returns the modes for attaching. CSI has none for ReadWriteOnce and
// ReadOnlyMany together, and the external-attacher refuses them (csi-lib-utils v0.24.0,
// accessmodes/access_modes.go, ToCSIAccessMode). Then it is the one of the node service.
func Attachable(all []AccessMode, one AccessMode) []AccessMode {
	all = ModesOr(all, one)
	if slices.Contains(all, ReadWriteMany) || !slices.Contains(all, ReadWriteOnce) || !slices.Contains(all, ReadOnlyMany) {
		return all
	}
	return []AccessMode{one.OrUsual()}
}

// A Volume is the mapping of a FlexVolume and of one call on it.
type Volume struct {
	FlexDriver string // vendor/name
	Driver     string // CSI driver name
	Handle     string // volumeHandle
	Name       string // of the PersistentVolume
	Context    map[string]string
	FSType     string
	MountFlags []string
	// AccessMode is for the node service; empty: not known.
	AccessMode AccessMode
	// AccessModes are those of the PersistentVolume; nil if it could not be read.
	AccessModes []AccessMode
	// Claim is the PersistentVolume's, after the call was verified.
	Claim ObjectRef
	// Inline: there is no PersistentVolume, and the configuration allows that.
	Inline bool

	// These belong to the call, not to the volume.
	ReadOnly bool
	FSGroup  *int64
	Pod      Pod
	Secrets  Secrets
}

// Key identifies the volume on the node.
func (v *Volume) Key() Key { return Key{Driver: v.Driver, Handle: v.Handle} }

// A Key identifies a volume: a driver knows it by its handle.
type Key struct{ Driver, Handle string }

// String is for messages and logs.
func (k Key) String() string { return k.Driver + "/" + k.Handle }

// A Pod is the pod of a mount.
type Pod struct {
	Name           string `json:"name,omitempty"`
	Namespace      string `json:"namespace,omitempty"`
	UID            string `json:"uid,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// Secrets are the secrets of each stage.
type Secrets struct {
	ControllerPublish, NodeStage, NodePublish, NodeExpand, ControllerExpand map[string]flex.Secret
}

// A Capability is CSI's VolumeCapability, for a mounted volume.
type Capability struct {
	FSType     string
	MountFlags []string
	AccessMode AccessMode
	// MountGroup is volume_mount_group: the fsGroup, for drivers that apply it
	// themselves (VOLUME_MOUNT_GROUP).
	MountGroup string
}

// AttachRequest is ControllerPublishVolume.
type AttachRequest struct {
	Handle     string
	NodeID     string
	Capability Capability
	Context    map[string]string
	Secrets    map[string]flex.Secret
}

// StageRequest is NodeStageVolume.
type StageRequest struct {
	Handle         string
	PublishContext map[string]string
	StagingPath    string
	Capability     Capability
	Secrets        map[string]flex.Secret
	Context        map[string]string
}

// PublishRequest is NodePublishVolume.
type PublishRequest struct {
	Handle         string
	PublishContext map[string]string
	StagingPath    string // empty for a driver that does not stage
	TargetPath     string
	Capability     Capability
	ReadOnly       bool
	Secrets        map[string]flex.Secret
	Context        map[string]string
}

// ExpandRequest is ControllerExpandVolume, and NodeExpandVolume where the
// paths are set.
type ExpandRequest struct {
	Handle      string
	VolumePath  string
	StagingPath string
	Size        int64 // required_bytes
	// OnNodeOnly: no controller has grown the volume before.
	OnNodeOnly bool
	Capability Capability
	Secrets    map[string]flex.Secret
}

// Usage is one unit of NodeGetVolumeStats; zero if it is missing.
type Usage struct{ Total, Used, Available int64 }

// Stats are the answer of NodeGetVolumeStats.
type Stats struct{ Bytes, Inodes Usage }

// Features are the capabilities of a driver that decide which RPCs are called.
type Features struct {
	Name    string // as GetPluginInfo says
	Version string
	NodeID  string // NodeGetInfo

	// Node service.
	Stage, NodeExpand, Stats, MountGroup, NodeSingleWriter bool
	// Controller service; all false if it cannot be reached.
	Attach, ControllerExpand, ControllerSingleWriter bool
	// Plugin.
	Controller, OnlineExpansion, OfflineExpansion bool
}

// Endpoints are the sockets of a CSI driver.
type Endpoints struct {
	// Node is the socket of its node service; empty: as registered with the kubelet.
	Node string `json:"node,omitempty"`
	// Controller is the socket of its controller service; empty: it is not called.
	Controller string `json:"controller,omitempty"`
}

// A Connection is the state of a connection to one service of a driver.
type Connection struct {
	Service   string // node or controller
	Connected bool
	// Since is when it was made; zero: never.
	Since time.Time
	// Version of the driver, from its last answer.
	Version string
	// Made counts the connections: one more than the reconnects.
	Made int
	// LastError is why there is no connection.
	LastError string
}

// An RPCError is the error of an RPC.
type RPCError struct {
	Method  string // NodeStageVolume, …
	Code    flex.Code
	Message string
	// NoAnswer: the driver has not answered; the connection broke, or the deadline
	// passed.
	NoAnswer bool
}

// Error has the method, the code, and the driver's message.
func (e *RPCError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Method, e.Code, e.Message)
}

// Final reports whether err is a final answer. If not, the driver may still process the
// call, or have completed it: then the call has to be repeated until there is a final
// answer, or be reversed (CSI specification, "Timeouts"; the classes are those of the
// kubelet, pkg/volume/csi/csi_client.go, isFinalError, Kubernetes v1.37.1).
func Final(err error) bool {
	e, ok := errors.AsType[*RPCError](err)
	if !ok || e.NoAnswer {
		return false
	}
	switch e.Code {
	case flex.CodeCanceled, flex.CodeDeadlineExceeded, flex.CodeUnavailable, flex.CodeResourceExhausted, flex.CodeAborted:
		return false
	}
	return true
}

// answered reports whether the driver itself returned code.
func answered(err error, code flex.Code) bool {
	e, ok := errors.AsType[*RPCError](err)
	return ok && !e.NoAnswer && e.Code == code
}

// Unimplemented reports whether the driver has no such RPC.
func Unimplemented(err error) bool { return answered(err, flex.CodeUnimplemented) }

// FailedPrecondition reports whether another step has to come first: for
// ControllerPublishVolume, to detach the volume from another node.
func FailedPrecondition(err error) bool { return answered(err, flex.CodeFailedPrecondition) }

// NotFound reports whether the driver does not know the volume. In the answer to an
// earlier RPC, such as NodeGetInfo, the code says nothing about a volume.
func NotFound(err error) bool { return answered(err, flex.CodeNotFound) }
