// Package csivol holds what the parts of the bridge say to each other about
// volumes: plain structs without behaviour, so that the life cycle of a volume
// (internal/bridge) needs to know neither gRPC nor the API server.
//
// Names are those of the CSI specification, with one exception: its volume_id
// is called volumeHandle here as in PersistentVolumes.
package csivol

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// AccessMode is a Kubernetes access mode: what a PersistentVolume says, not
// what CSI makes of it, which depends on the capabilities of the driver.
type AccessMode string

// The access modes of Kubernetes.
const (
	ReadWriteOnce    AccessMode = "ReadWriteOnce"
	ReadOnlyMany     AccessMode = "ReadOnlyMany"
	ReadWriteMany    AccessMode = "ReadWriteMany"
	ReadWriteOncePod AccessMode = "ReadWriteOncePod"
)

// OrUsual is the mode that is asked for where none is known: no callout tells it,
// and the API server may be away. It is that of most volumes.
func (m AccessMode) OrUsual() AccessMode { return cmp.Or(m, ReadWriteOnce) }

// ModesOr are those of the PersistentVolume, or the one that is known.
func ModesOr(all []AccessMode, one AccessMode) []AccessMode {
	if len(all) > 0 {
		return all
	}
	return []AccessMode{one.OrUsual()}
}

// Attachable are the modes with which the volume can be attached. CSI has none for
// ReadWriteOnce and ReadOnlyMany together, and the external-attacher refuses them
// (csi-lib-utils v0.24.0, accessmodes/access_modes.go, ToCSIAccessMode). Then it is
// the one that the driver is told on the node.
func Attachable(all []AccessMode, one AccessMode) []AccessMode {
	all = ModesOr(all, one)
	if slices.Contains(all, ReadWriteMany) || !slices.Contains(all, ReadWriteOnce) || !slices.Contains(all, ReadOnlyMany) {
		return all
	}
	return []AccessMode{one.OrUsual()}
}

// A Volume is what a mapping makes of a FlexVolume and of one call on it.
type Volume struct {
	FlexDriver string // vendor/name
	Driver     string // CSI driver name
	Handle     string // volumeHandle
	Name       string // of the PersistentVolume
	Context    map[string]string
	FSType     string
	MountFlags []string
	// AccessMode is what the node service is told; empty: not known.
	AccessMode AccessMode
	// AccessModes are those of the PersistentVolume; nil where it could not be
	// read.
	AccessModes []AccessMode
	// Claim is that of the PersistentVolume, which the call was verified to be for.
	Claim ObjectRef
	// Inline: there is no such PersistentVolume, and the configuration allows that.
	Inline bool

	// What follows belongs to the call rather than to the volume.
	ReadOnly bool
	FSGroup  *int64
	Pod      Pod
	Secrets  Secrets
}

// Key names the volume among all of the node: a driver knows it by its handle.
func (v *Volume) Key() Key { return Key{Driver: v.Driver, Handle: v.Handle} }

// A Key is what a volume is known by.
type Key struct{ Driver, Handle string }

// String is for messages and logs.
func (k Key) String() string { return k.Driver + "/" + k.Handle }

// A Pod is the pod that a volume is mounted for.
type Pod struct {
	Name           string `json:"name,omitempty"`
	Namespace      string `json:"namespace,omitempty"`
	UID            string `json:"uid,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

// Secrets are given to the CSI driver stage by stage.
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
	ReadOnly   bool
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

// Usage is what NodeGetVolumeStats tells of one unit; all zero if it does not.
type Usage struct{ Total, Used, Available int64 }

// Stats are the answer of NodeGetVolumeStats.
type Stats struct{ Bytes, Inodes Usage }

// Features are the capabilities of a driver that decide what is called.
type Features struct {
	Name    string // as GetPluginInfo says
	Version string
	NodeID  string // NodeGetInfo

	// Node service.
	Stage, NodeExpand, Stats, MountGroup, NodeSingleWriter bool
	// Controller service; all false if it cannot be reached.
	Attach, AttachReadOnly, ControllerExpand, ControllerSingleWriter bool
	// Plugin.
	Controller, OnlineExpansion, OfflineExpansion bool
}

// Endpoints are where a CSI driver is found.
type Endpoints struct {
	// Node is the socket of its node service; empty: that which it has registered
	// with the kubelet.
	Node string `json:"node,omitempty"`
	// Controller is that of its controller service; empty: it is not called from here.
	Controller string `json:"controller,omitempty"`
}

// A Connection is how that to one service of a driver is.
type Connection struct {
	Service   string // node or controller
	Connected bool
	// Since is when it was made; zero if it never was.
	Since time.Time
	// Version of the driver, as it said when it was asked last.
	Version string
	// Made counts the connections so far: one more than there were reconnects.
	Made int
	// LastError is why there is none.
	LastError string
}

// An RPCError is what a CSI driver answered, or that it did not.
type RPCError struct {
	Method  string // NodeStageVolume, …
	Code    flex.Code
	Message string
	// NoAnswer says that the error is not the driver's own: the connection
	// broke, or the deadline passed.
	NoAnswer bool
}

// Error names the method, what it ended with, and what the driver said.
func (e *RPCError) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Method, e.Code, e.Message)
}

// Final reports whether an operation that ended with err is over. If not, the
// driver may still be at it, or be done: then the same call has to be repeated
// until there is a final answer, or its negation has to be called (CSI
// specification, "Timeouts"; the classes are those of the kubelet,
// pkg/volume/csi/csi_client.go, isFinalError, Kubernetes v1.37.1).
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

// answered reports whether the driver itself said code.
func answered(err error, code flex.Code) bool {
	e, ok := errors.AsType[*RPCError](err)
	return ok && !e.NoAnswer && e.Code == code
}

// Unimplemented reports whether the driver has no such RPC.
func Unimplemented(err error) bool { return answered(err, flex.CodeUnimplemented) }

// FailedPrecondition reports whether something has to be done before: for
// ControllerPublishVolume, detach the volume from another node.
func FailedPrecondition(err error) bool { return answered(err, flex.CodeFailedPrecondition) }

// NotFound reports whether the driver does not know the volume. One that gives
// this code to a question that came before has said nothing about a volume.
func NotFound(err error) bool { return answered(err, flex.CodeNotFound) }
