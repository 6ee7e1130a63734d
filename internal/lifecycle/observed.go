package lifecycle

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// Observed is what was seen of a volume. Facts that cost I/O are
// observed when a condition needs them (Look). After a step all of them are stale.
type Observed struct {
	// Now is when it was seen, and Grace how long something may be left half-done
	// before it is undone because no call asks for it any more.
	Now   time.Time
	Grace time.Duration
	// Awaited: a caller waits for what comes of the operation.
	Awaited bool
	// Node is the name of this one.
	Node string
	// KubeletDir is that of the kubelet, such as /var/lib/kubelet.
	KubeletDir string
	// KubeletStaging is where the kubelet's CSI plugin would have the volume staged.
	KubeletStaging string
	// Facts are those that were observed since the last step.
	Facts map[Fact]Seen
}

// A FactKind is a kind of fact.
type FactKind string

// The facts. Those with a directory are about that target.
const (
	// TheDriver: what the CSI driver can do, and its policy.
	TheDriver FactKind = "the driver"
	// ThePlugin: what the kubelet's CSI plugin has of the volume on this node.
	ThePlugin FactKind = "the kubelet's CSI plugin"
	// TheStage, TheDevice, TheDir and TheTarget are what is mounted at the staging
	// path, the device mount path, the kubelet's directory and the driver's target.
	TheStage  FactKind = "the staging path"
	TheDevice FactKind = "the device mount path"
	TheDir    FactKind = "the kubelet's directory"
	TheTarget FactKind = "the target path"
	// ThePod: the pod's directory.
	ThePod FactKind = "the pod"
	// ThePVState: what became of the PersistentVolume.
	ThePVState FactKind = "the PersistentVolume"
	// ThePendingUnmount: whether flexdriver has unmounted the directory meanwhile.
	ThePendingUnmount FactKind = "the pending unmount"
	// TheOther: whether the directory belongs to another volume.
	TheOther FactKind = "another volume"
	// TheAttachment: whether the VolumeAttachment is lost.
	TheAttachment FactKind = "the VolumeAttachment"
	// TheSecrets: whether those of NodeStageVolume are others than those of the last
	// attempt, which may have succeeded.
	TheSecrets FactKind = "the secrets"
	// TheCall: whether what a call would say is known without one.
	TheCall FactKind = "what the call said"
	// TheSize: what the filesystem at the target has.
	TheSize FactKind = "the size"
	// TheTurn: whether it is time for NodePublishVolume once more.
	TheTurn FactKind = "the time"
	// TheClaim: whether a pod of the node may have the volume attached.
	TheClaim FactKind = "the claim"
)

// A Fact is something to look at.
type Fact struct {
	What FactKind
	Dir  string
}

// Seen is what was seen. Which fields count is the fact's to say.
type Seen struct {
	Mount   MountState
	Yes     bool
	Err     error // why, or why it is not known
	Driver  *DriverFacts
	Plugin  PluginState
	Pod     PodState
	PVState csivol.PVState
	// SameFilesystem: the kubelet's CSI plugin has the filesystem of the target
	// mounted for the same pod.
	SameFilesystem bool
	// Filesystem and Device are sizes in bytes; zero: not known, or none.
	Filesystem, Device int64
}

// A MountState is what is at a path.
type MountState string

// The states. Unknown comes with an error.
const (
	Unknown    MountState = ""
	NoDir      MountState = "no directory"
	NotMounted MountState = "not mounted"
	Alive      MountState = "alive"
	Dead       MountState = "dead"
	Silent     MountState = "silent"
)

// Mounted reports whether something is mounted there, working or not.
func (m MountState) Mounted() bool { return m == Alive || m == Dead || m == Silent }

// A PluginState is what the kubelet's CSI plugin has of a volume.
type PluginState struct {
	// Pods: it has the volume for a pod. Staged: as its file next to the staging path
	// says, it has staged it.
	Pods, Staged bool
	// Mounted: something is mounted at its staging path, or directly below.
	Mounted bool
	// Since is when that file was written.
	Since time.Time
}

// A PodState is what the node shows of a pod.
type PodState struct {
	// Known: the directory of all pods is there. Where it is not mounted (yet) all
	// pods seem gone.
	Known bool
	// Gone: the kubelet has removed the pod's directory.
	Gone bool
	// Volumes: the directory of the pod's volumes of this driver is there. The
	// kubelet makes it, and removes it with the pod.
	Volumes bool
	// NoContainer: no container was ever made, so none can have the mount.
	NoContainer bool
}

// A Route is how a volume is attached.
type Route int

// The routes.
const (
	NoAttach            Route = iota // the volume needs no attach
	ByControllerService              // ControllerPublishVolume, from here
	ByVolumeAttachment               // a VolumeAttachment
)

// DriverFacts are what decisions need to know of a CSI driver.
type DriverFacts struct {
	Features csivol.Features
	// Route is that of the configuration; RouteErr why there is none. ClusterErr is
	// why volumes cannot be attached by the cluster.
	Route                Route
	RouteErr, ClusterErr error
	// CanCluster: there is access to VolumeAttachments.
	CanCluster bool
	// FSGroup: the policy is that the fsGroup is applied here (File or, for volumes
	// of one node with a filesystem, ReadWriteOnceWithFSType).
	FSGroup storagev1.FSGroupPolicy
	// Device is the device mount path of the volume; empty without attach: true.
	Device string
	// RepairInUse: dead mounts are replaced even if containers have them.
	RepairInUse bool
}
