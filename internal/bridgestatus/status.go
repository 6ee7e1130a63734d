// Package bridgestatus has the document of flex2csi status (docs/status.md). The daemon
// makes it, or the command itself from the daemon's files if no daemon runs.
//
// No field has a secret. Error messages of drivers were cleaned before they were stored,
// and are cleaned here again of what looks secret.
package bridgestatus

import "time"

// The kind of the document. Until the version changes, fields are only added.
const (
	APIVersion = "flex2csi.io/v1alpha1"
	Kind       = "BridgeStatus"
)

// Source is the source of a status.
type Source string

// The sources. The state directory lacks what only the daemon knows: drivers and
// operations.
const (
	SourceDaemon   Source = "Daemon"
	SourceStateDir Source = "StateDirectory"
)

// A BridgeStatus is the status of the bridge on a node.
type BridgeStatus struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Source     Source `json:"source"`
	// Time is when the status was taken.
	Time time.Time `json:"time"`
	// Daemon is absent if there is none.
	Daemon *Daemon `json:"daemon,omitempty"`
	// Cluster is absent if the daemon has no access to the API server.
	Cluster         *ClusterStatus   `json:"cluster,omitempty"`
	Drivers         []DriverStatus   `json:"drivers"`
	Volumes         []VolumeStatus   `json:"volumes"`
	Failures        []Failure        `json:"failures"`
	Lost            []Lost           `json:"lost"`
	PendingUnmounts []PendingUnmount `json:"pendingUnmounts"`
	// BrokenFiles are state files that could not be read.
	BrokenFiles []string `json:"brokenFiles"`
}

// New returns an empty status.
func New(source Source) *BridgeStatus {
	return &BridgeStatus{
		APIVersion: APIVersion, Kind: Kind, Source: source, Time: time.Now().UTC(),
		Drivers: []DriverStatus{}, Volumes: []VolumeStatus{}, Failures: []Failure{}, Lost: []Lost{}, PendingUnmounts: []PendingUnmount{}, BrokenFiles: []string{},
	}
}

// A Daemon is the daemon that made the status.
type Daemon struct {
	NodeName string    `json:"nodeName"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Draining bool      `json:"draining,omitempty"`
}

// A ClusterStatus says whether the API server can be reached.
type ClusterStatus struct {
	Reachable bool       `json:"reachable"`
	Since     *time.Time `json:"since,omitempty"`
	LastError string     `json:"lastError,omitempty"`
}

// A DriverStatus is the status of a driver of the configuration.
type DriverStatus struct {
	FlexDriver string `json:"flexDriver"`
	CSIDriver  string `json:"csiDriver"`
	// Services are node and, where the configuration names its endpoint,
	// controller.
	Services []Service `json:"services"`
}

// A Service is a service of a CSI driver. The daemon connects when it needs it.
type Service struct {
	Name       string     `json:"name"`
	Connected  bool       `json:"connected"`
	Since      *time.Time `json:"since,omitempty"` // of the last connection
	Version    string     `json:"version,omitempty"`
	Reconnects int        `json:"reconnects"`
	LastError  string     `json:"lastError,omitempty"`
}

// Usage is the answer of NodeGetVolumeStats.
type Usage struct {
	CapacityBytes  int64 `json:"capacityBytes"`
	UsedBytes      int64 `json:"usedBytes"`
	AvailableBytes int64 `json:"availableBytes"`
	Inodes         int64 `json:"inodes,omitempty"`
	InodesUsed     int64 `json:"inodesUsed,omitempty"`
	InodesFree     int64 `json:"inodesFree,omitempty"`
}

// Phase is the phase of a volume, or of a part of its life. A phase that ends in -ing
// is uncertain: there is no final answer of the driver yet.
type Phase string

// The phases. A volume has the phase of the part that is furthest.
const (
	Idle         Phase = "Idle" // nothing of it is on this node
	Attaching    Phase = "Attaching"
	Attached     Phase = "Attached"
	Detaching    Phase = "Detaching"
	Staging      Phase = "Staging"
	Staged       Phase = "Staged"
	Unstaging    Phase = "Unstaging"
	Claimed      Phase = "Claimed" // by a pod, and not published yet
	Publishing   Phase = "Publishing"
	Published    Phase = "Published"
	Unpublishing Phase = "Unpublishing"
)

// The phases of an expansion.
const (
	expanding Phase = "Expanding"
	expanded  Phase = "Expanded"
)

// Phases returns the phases of a volume.
func Phases() []Phase {
	return []Phase{Idle, Attaching, Attached, Detaching, Staging, Staged, Unstaging, Claimed, Publishing, Published, Unpublishing}
}

// A VolumeStatus is the status of a volume on this node.
type VolumeStatus struct {
	PersistentVolume string `json:"persistentVolume,omitempty"`
	FlexDriver       string `json:"flexDriver,omitempty"`
	CSIDriver        string `json:"csiDriver"`
	VolumeHandle     string `json:"volumeHandle"`
	Phase            Phase  `json:"phase"`
	// Changed is the time of the last change.
	Changed *time.Time `json:"changed,omitempty"`
	// UncertainSince is when the first step began that is neither done nor undone.
	// Retries do not change it.
	UncertainSince *time.Time `json:"uncertainSince,omitempty"`
	FSType         string     `json:"fsType,omitempty"`
	AccessMode     string     `json:"accessMode,omitempty"`
	// Inline says that it is an inline volume of a pod.
	Inline bool `json:"inline,omitempty"`

	Attachment *Attachment  `json:"attachment,omitempty"`
	Staging    *stageStatus `json:"staging,omitempty"`
	// DeviceMountPath is where the kubelet sees a marker; attach: true only.
	DeviceMountPath string         `json:"deviceMountPath,omitempty"`
	Targets         []targetStatus `json:"targets,omitempty"`
	Expansion       *Expansion     `json:"expansion,omitempty"`
	// TakenOver says that the kubelet's own CSI plugin has the volume now.
	TakenOver bool `json:"takenOver,omitempty"`
	// Recovered says that the last record could not be read, and that this is the
	// version before.
	Recovered bool `json:"recovered,omitempty"`
	// Incomplete says that the record lacks values that look secret: dead mounts are
	// not replaced before the next mount.
	Incomplete bool `json:"incomplete,omitempty"`

	// Usage is the driver's answer of the last minutes, if it has statistics and the
	// daemon serves metrics.
	Usage *Usage `json:"usage,omitempty"`

	Operations []Operation `json:"operations,omitempty"`
	LastError  string      `json:"lastError,omitempty"`
}

// An Attachment is the attachment of a volume to this node.
type Attachment struct {
	Phase  Phase  `json:"phase"`
	By     string `json:"by,omitempty"`
	NodeID string `json:"nodeID,omitempty"`
	// Object is the name of the VolumeAttachment; empty: the controller service
	// attaches.
	Object string `json:"volumeAttachment,omitempty"`
	// Unmanaged says that another component has made it, and will delete it.
	Unmanaged bool `json:"unmanaged,omitempty"`
	// Lost says that it was deleted or detached while pods have the volume.
	Lost bool `json:"lost,omitempty"`
}

// A stageStatus is the result of NodeStageVolume.
type stageStatus struct {
	Phase Phase  `json:"phase"`
	Path  string `json:"path"`
	// Corrupted is why the mount there does not work any more.
	Corrupted string `json:"corrupted,omitempty"`
}

// A targetStatus is one pod's use of a volume.
type targetStatus struct {
	Dir        string     `json:"dir"`                  // the kubelet's
	TargetPath string     `json:"targetPath,omitempty"` // the driver's, if it is another
	Phase      Phase      `json:"phase"`
	Since      *time.Time `json:"since,omitempty"`
	Pod        PodRef     `json:"pod"`
	ReadOnly   bool       `json:"readOnly,omitempty"`
	FSGroup    *int64     `json:"fsGroup,omitempty"`
	LastError  string     `json:"lastError,omitempty"`
	// Corrupted is why the pod's mount does not work any more.
	Corrupted string `json:"corrupted,omitempty"`
}

// A PodRef names a pod that has a volume.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// An Expansion is the last expansion of a volume.
type Expansion struct {
	Phase Phase `json:"phase"`
	Bytes int64 `json:"bytes"`
}

// An Operation is an operation under way.
type Operation struct {
	// Command is the callout, or the daemon's own operation.
	Command string `json:"command"`
	Dir     string `json:"dir,omitempty"`
	// Request is the id in flexdriver's answer and in the log.
	Request string    `json:"request,omitempty"`
	Since   time.Time `json:"since"`
	// Begun is absent while the operation waits for another on the volume.
	Begun *time.Time `json:"begun,omitempty"`
	// Step is what it does now, such as the RPC NodeStageVolume, and StepSince when that began.
	Step      string     `json:"step,omitempty"`
	StepSince *time.Time `json:"stepSince,omitempty"`
}

// A Failure is a call that failed the last time. A volume with a set-up that failed and
// was undone shows only here.
type Failure struct {
	FlexDriver       string `json:"flexDriver"`
	Command          string `json:"command"` // the callout
	PersistentVolume string `json:"persistentVolume,omitempty"`
	Dir              string `json:"dir,omitempty"`
	Pod              PodRef `json:"pod"`
	// Since and Last are the times of the first and the last failure.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
	// Request, Code and Message are those of the last time.
	Request string `json:"request"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// A Lost is a pod's volume without a record. It is not modified: the next mount makes a
// record, and an unmount needs none.
type Lost struct {
	FlexDriver       string `json:"flexDriver"`
	PersistentVolume string `json:"persistentVolume"`
	Dir              string `json:"dir"`
}

// A PendingUnmount is an unmount that was made while the daemon was down, and that the
// daemon has not completed yet.
type PendingUnmount struct {
	FlexDriver string    `json:"flexDriver"`
	Dir        string    `json:"dir"`
	Since      time.Time `json:"since"`
}
