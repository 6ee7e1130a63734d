// Package bridge does for FlexVolumes what the kubelet's CSI plugin does for CSI
// volumes, in the order of the CSI specification. It stays correct when the
// kubelet, the driver, this process or the node dies in the middle.
//
// Each callout is one operation on one volume, for a goal (callouts.go, bringTo). The
// operations on a volume are serialized, and a repeated one joins (volume.go, inTurn).
// An operation asks internal/lifecycle for the next step until the goal is reached
// (executor.go, execute): it observes what the planner wants to know (observe.go), writes
// the intent to the disk, takes the step (steps.go, act) and records the outcome. It
// does not know the order of steps. Reconcile is one more goal, for what the kubelet
// has forgotten (reconcile.go).
//
// The package knows neither gRPC nor the API server nor the command line: it
// says in this file, cluster.go and dirs.go what it needs of them.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A Service is a CSI driver as the bridge sees it. All methods may be called
// side by side. Errors are *csivol.RPCError where the driver said something.
// internal/csiclient, Client, implements it.
type Service interface {
	// Features are what the driver can do. They are requested again after each
	// reconnection. If its controller cannot be reached, they have none of the
	// controller's capabilities.
	Features(ctx context.Context) (csivol.Features, error)

	NodeStage(ctx context.Context, r csivol.StageRequest) error
	NodeUnstage(ctx context.Context, handle, stagingPath string) error
	NodePublish(ctx context.Context, r csivol.PublishRequest) error
	NodeUnpublish(ctx context.Context, handle, targetPath string) error
	NodeExpand(ctx context.Context, r csivol.ExpandRequest) error
	NodeStats(ctx context.Context, handle, volumePath, stagingPath string) (csivol.Stats, error)

	ControllerPublish(ctx context.Context, r csivol.AttachRequest) (publishContext map[string]string, err error)
	ControllerUnpublish(ctx context.Context, handle, nodeID string, secrets map[string]flex.Secret) error
	// ControllerExpand returns whether the node has to expand as well.
	ControllerExpand(ctx context.Context, r csivol.ExpandRequest) (nodeExpansionRequired bool, err error)
}

// Mounts is what the bridge does with mounts by itself.
type Mounts interface {
	// Bind makes the driver's target path visible at the kubelet's directory, in one
	// step, and verifies it.
	Bind(ctx context.Context, source, target string, readOnly bool) error
	// ReadOnly makes what is mounted at a path read-only there, and verifies it.
	ReadOnly(ctx context.Context, path string) error
	// Marker makes a directory a mount point, so that the kubelet calls
	// unmountdevice for it (kubelet, pkg/volume/flexvolume/detacher.go).
	Marker(ctx context.Context, dir string) error
	// Guard mounts the guard of a target path, without which the kubelet may delete what is
	// published there; RemoveTarget unmounts both and removes the directories. Nothing is
	// success.
	Guard(ctx context.Context, target string) error
	RemoveTarget(ctx context.Context, target string) error
	// Unmount removes all that is mounted at a path; nothing is success.
	Unmount(ctx context.Context, path string) error
	// Mounted reports whether path is a mount point, without touching it.
	Mounted(path string) (bool, error)
	// Below returns what is mounted directly below a directory that is no mount
	// point itself, without touching it.
	Below(path string) ([]string, error)
	// SameFilesystem reports whether one filesystem is mounted at two paths, so
	// that it lives on at the one when the other is unmounted.
	SameFilesystem(a, b string) (bool, error)
	// SetGroup gives a tree to a group unless its root has it.
	SetGroup(ctx context.Context, path string, gid int64) error
	// Size returns how many bytes the filesystem at path has, and the block device
	// that it is on; 0: it has none. It does not wait for a filesystem that hangs.
	Size(path string) (fs, device int64, err error)
	// Healthy returns why the mount at path does not work any more, for example since
	// the process of a FUSE filesystem has exited. It does not wait for one that
	// hangs: os.ErrDeadlineExceeded only says that no answer came.
	Healthy(path string) error
}

// PendingUnmounts are the unmounts that flexdriver made while the daemon was down.
type PendingUnmounts interface {
	// Dirs returns the directories of all that can be read.
	Dirs() []string
	Has(dir string) (bool, error)
	Remove(dir string) error
}

// RecordStore is where records are kept.
type RecordStore interface {
	Put(r *volstate.Record) error
	Delete(k csivol.Key) error
}

// A FlexDriver is a driver name that the kubelet calls, with a CSI driver: one of the
// configuration. It is not the program flexdriver.
type FlexDriver struct {
	Name string // vendor/name
	// CSIDriver is the name of the Service's driver.
	CSIDriver string
	Service   Service
	// Endpoints are where the Service is, for records; nil: they are not told.
	Endpoints *csivol.Endpoints
	// Map turns the options of a call into a volume of the CSI driver, if it may be
	// let in (internal/drivers, mapVolumes).
	Map func(context.Context, flex.Options) (*csivol.Volume, error)
	// Read makes a volume of its PersistentVolume, without a call; nil: there is no
	// access to the cluster.
	Read func(ctx context.Context, persistentVolume string) (*csivol.Volume, error)
	// MayAttach is an error unless a pod of the node has the volume by its claim. It
	// is asked by attach, which does not tell for which pod; nil: not checked.
	MayAttach func(ctx context.Context, v *csivol.Volume, node string) error
	// Attach says how volumes are attached: Auto does through the controller if
	// the driver wants it and its controller can be reached, or else through the
	// cluster if there is an Attacher and the Policy wants it.
	Attach   bridgeconfig.AttachMode
	Attacher Attacher // nil: there is none
	// AttachSecret is what the Attacher has to name for ControllerPublishVolume.
	AttachSecret *csivol.SecretRef
	// AttachSecretsHere: those for ControllerPublishVolume come from a file or
	// from a call, which the external-attacher behind the Attacher cannot read.
	AttachSecretsHere bool
	// Policy returns what may change while the process lives; nil: the zero one.
	Policy func(context.Context) (Policy, error)
	// Inline volumes are allowed: the name of a volume does not tell which it is.
	Inline bool
	// AttachSecrets returns those of ControllerPublishVolume that are known
	// without the options of a call; nil if there are none.
	AttachSecrets func(context.Context) (map[string]flex.Secret, error)
	// ExpandSecrets adds to the secrets of a call what is read for expansions
	// only; nil: there is nothing.
	ExpandSecrets func(context.Context, *csivol.Secrets) error
	// StaticSecrets returns the secrets that do not come with a call; an error
	// if some stage needs others. Republish and repair have no call.
	StaticSecrets func(context.Context) (csivol.Secrets, error)
	// Tokens returns those of the pod's service account that the Policy names,
	// as the value of csi.storage.k8s.io/serviceAccount.tokens; nil: there are
	// none to be had.
	Tokens func(context.Context, csivol.Pod, []csivol.TokenRequest) (flex.Secret, error)
	// RepairInUse replaces dead mounts even if containers of the pod may be running.
	RepairInUse bool
	// Timeout is the deadline of RPCs, and of waiting for the cluster to attach or
	// detach; zero: two minutes, as the kubelet's (pkg/volume/csi/csi_plugin.go,
	// csiTimeout, Kubernetes v1.37.1).
	Timeout time.Duration
}

// A Bridge serves all drivers of a node.
type Bridge struct {
	// Context ends when the process does; operations outlive the calls that
	// started them, but not this.
	Context         context.Context //nolint:containedctx // the life of the process
	Mounts          Mounts
	Dirs            Dirs // nil: the node's
	State           RecordStore
	PendingUnmounts PendingUnmounts // nil: there are none
	KubeletDir      string
	NodeName        string
	BootID          string
	Drivers         Drivers
	// Removed returns a driver that the configuration no longer has, for tear-down
	// only, from what a record says; nil: there is none.
	Removed func(flexDriver, csiDriver string, at csivol.Endpoints) *FlexDriver
	// Grace is how long something may be left half-done before it is undone
	// because no call asks for it any more. Zero: DefaultGrace.
	Grace time.Duration
	// Attachments returns those in the cluster that are of this node's making, for
	// Sweep; nil: there are none.
	Attachments func(context.Context) ([]*csivol.Attachment, error)
	// PVState returns the state of a PersistentVolume since it was mounted, and of a
	// pod that has it; nil: the state is unknown.
	PVState func(ctx context.Context, persistentVolume string, key csivol.Key, podUID string) (csivol.PVState, error)
	// Notify reports what needs an operator's attention; nil: nothing is reported.
	Notify func(csivol.Event)
	// Measure asks the drivers that can tell how full volumes are, for metrics.
	Measure bool
	// DetachWait is how long the last unmount waits for a detach through the
	// cluster, which goes on without it. Zero: 10 s.
	DetachWait time.Duration
	Log        *slog.Logger

	digests    digester
	planner    lifecycle.Planner
	registry   registry
	podVolumes podVolumes
}

func (b *Bridge) log() *slog.Logger {
	if b.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return b.Log
}

// coded gives an RPC error its class for the answer.
func coded(err error) error {
	if e, ok := errors.AsType[*csivol.RPCError](err); ok {
		code := e.Code
		if code == flex.CodeUnimplemented {
			code = flex.CodeFailedPrecondition // never "Not supported", which is remembered
		}
		return &flex.Error{Code: code, Err: err}
	}
	return err
}

// pendingUnmount reports whether dir has one.
func (b *Bridge) pendingUnmount(dir string) (bool, error) {
	if b.PendingUnmounts == nil {
		return false, nil
	}
	return b.PendingUnmounts.Has(dir)
}

// forgetPendingUnmount is part of a complete unmount: a pending unmount that outlived it
// would take the next mount at dir away.
func (b *Bridge) forgetPendingUnmount(dir string) error {
	if b.PendingUnmounts == nil {
		return nil
	}
	return b.PendingUnmounts.Remove(dir)
}

// DefaultGrace is how long something may be left half-done before it is undone
// because no call asks for it any more. It exceeds the kubelet's longest pause
// between two tries (2 min 2 s) and its wait for a pod's volumes (2 min 3 s).
const DefaultGrace = 5 * time.Minute

func (b *Bridge) grace() time.Duration {
	if b.Grace <= 0 {
		return DefaultGrace
	}
	return b.Grace
}
