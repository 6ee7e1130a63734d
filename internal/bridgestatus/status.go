// Package bridgestatus is what flex2csi status shows: a document with a form of
// its own (docs/status.md), made by the daemon of what it knows, or of its
// files where there is no daemon, and printed for people or for programs.
//
// No field holds a secret. What a driver said in an error was cleaned before it
// was written down, and is cleaned once more here by what it looks like.
package bridgestatus

import "time"

// What the document calls itself. The form changes only by fields that are
// added, until the version does.
const (
	APIVersion = "flex2csi.io/v1alpha1"
	Kind       = "BridgeStatus"
)

// Source is where a status was taken from.
type Source string

// The sources. What only the daemon knows (drivers, operations) is missing
// from the other one.
const (
	SourceDaemon   Source = "Daemon"
	SourceStateDir Source = "StateDirectory"
)

// A BridgeStatus is how the bridge of a node is.
type BridgeStatus struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Source     Source `json:"source"`
	// Time is when the status was taken.
	Time time.Time `json:"time"`
	// Daemon is absent if there is none.
	Daemon *Daemon `json:"daemon,omitempty"`
	// Cluster is absent if the daemon has no access to the API server.
	Cluster    *Cluster    `json:"cluster,omitempty"`
	Drivers    []Driver    `json:"drivers"`
	Volumes    []Volume    `json:"volumes"`
	Failures   []Failure   `json:"failures"`
	Lost       []Lost      `json:"lost"`
	Tombstones []Tombstone `json:"tombstones"`
	// BrokenFiles are state files that could not be read.
	BrokenFiles []string `json:"brokenFiles"`
}

// New returns a status without anything in it.
func New(source Source) *BridgeStatus {
	return &BridgeStatus{
		APIVersion: APIVersion, Kind: Kind, Source: source, Time: time.Now().UTC(),
		Drivers: []Driver{}, Volumes: []Volume{}, Failures: []Failure{}, Lost: []Lost{}, Tombstones: []Tombstone{}, BrokenFiles: []string{},
	}
}

// A Daemon is the flex2csi that was asked.
type Daemon struct {
	NodeName string    `json:"nodeName"`
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Draining bool      `json:"draining,omitempty"`
}

// A Cluster is how its API server can be reached.
type Cluster struct {
	Reachable bool       `json:"reachable"`
	Since     *time.Time `json:"since,omitempty"`
	LastError string     `json:"lastError,omitempty"`
}

// A Driver is one that the configuration names.
type Driver struct {
	FlexDriver string `json:"flexDriver"`
	CSIDriver  string `json:"csiDriver"`
	// Services are node and, where the configuration names its endpoint,
	// controller.
	Services []Service `json:"services"`
}

// A Service is one service of a CSI driver. It is connected to when it is
// needed, not before.
type Service struct {
	Name       string     `json:"name"`
	Connected  bool       `json:"connected"`
	Since      *time.Time `json:"since,omitempty"` // of the last connection
	Version    string     `json:"version,omitempty"`
	Reconnects int        `json:"reconnects"`
	LastError  string     `json:"lastError,omitempty"`
}

// Usage is how full a volume is: NodeGetVolumeStats.
type Usage struct {
	CapacityBytes  int64 `json:"capacityBytes"`
	UsedBytes      int64 `json:"usedBytes"`
	AvailableBytes int64 `json:"availableBytes"`
	Inodes         int64 `json:"inodes,omitempty"`
	InodesUsed     int64 `json:"inodesUsed,omitempty"`
	InodesFree     int64 `json:"inodesFree,omitempty"`
}

// Phase is how far a volume, or a part of its life, is. One that ends in -ing
// is in doubt: begun, and without a final answer of the driver.
type Phase string

// The phases. A volume has that of the part of its life that is furthest.
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
	Expanding    Phase = "Expanding"
	Expanded     Phase = "Expanded"
)

// Phases are all that a volume may have.
func Phases() []Phase {
	return []Phase{Idle, Attaching, Attached, Detaching, Staging, Staged, Unstaging, Claimed, Publishing, Published, Unpublishing}
}

// A Volume is one volume on this node.
type Volume struct {
	PersistentVolume string `json:"persistentVolume,omitempty"`
	FlexDriver       string `json:"flexDriver,omitempty"`
	CSIDriver        string `json:"csiDriver"`
	VolumeHandle     string `json:"volumeHandle"`
	Phase            Phase  `json:"phase"`
	// Changed is when something last happened to it.
	Changed *time.Time `json:"changed,omitempty"`
	// InDoubtSince is when the first step was begun that is neither done nor
	// undone, however often it was tried since.
	InDoubtSince *time.Time `json:"inDoubtSince,omitempty"`
	FSType       string     `json:"fsType,omitempty"`
	AccessMode   string     `json:"accessMode,omitempty"`
	// Inline says that a pod was let in with an inline volume.
	Inline bool `json:"inline,omitempty"`

	Attachment *Attachment `json:"attachment,omitempty"`
	Staging    *Stage      `json:"staging,omitempty"`
	// DeviceMountPath is where the kubelet sees a marker; attach: true only.
	DeviceMountPath string     `json:"deviceMountPath,omitempty"`
	Targets         []Target   `json:"targets,omitempty"`
	Expansion       *Expansion `json:"expansion,omitempty"`
	// TakenOver says that the kubelet's own CSI plugin has the volume now.
	TakenOver bool `json:"takenOver,omitempty"`
	// Recovered says that the record could not be read, and that this is the
	// version before it.
	Recovered bool `json:"recovered,omitempty"`
	// Incomplete says that values which look secret, and are in no file, are
	// not known: dead mounts are not replaced before the next mount.
	Incomplete bool `json:"incomplete,omitempty"`

	// Usage is what the driver told within the last minutes, if it can and the
	// daemon serves metrics.
	Usage *Usage `json:"usage,omitempty"`

	Operations []Operation `json:"operations,omitempty"`
	LastError  string      `json:"lastError,omitempty"`
}

// An Attachment is that of a volume to this node.
type Attachment struct {
	Phase  Phase  `json:"phase"`
	By     string `json:"by,omitempty"`
	NodeID string `json:"nodeID,omitempty"`
	// Object is the name of the VolumeAttachment; empty: the controller service
	// attaches.
	Object string `json:"volumeAttachment,omitempty"`
	// Foreign says that somebody else has made it, and will delete it.
	Foreign bool `json:"foreign,omitempty"`
	// Lost says that it is gone, or not attached any more, while pods have the
	// volume.
	Lost bool `json:"lost,omitempty"`
}

// A Stage is what NodeStageVolume has made.
type Stage struct {
	Phase Phase  `json:"phase"`
	Path  string `json:"path"`
	// Corrupted is why what is mounted there does not work any more.
	Corrupted string `json:"corrupted,omitempty"`
}

// A Target is one pod's use of a volume.
type Target struct {
	Dir        string     `json:"dir"`                  // the kubelet's
	TargetPath string     `json:"targetPath,omitempty"` // the driver's, if it is another
	Phase      Phase      `json:"phase"`
	Since      *time.Time `json:"since,omitempty"`
	Pod        Pod        `json:"pod"`
	ReadOnly   bool       `json:"readOnly,omitempty"`
	FSGroup    *int64     `json:"fsGroup,omitempty"`
	LastError  string     `json:"lastError,omitempty"`
	// Corrupted is why what the pod has does not work any more.
	Corrupted string `json:"corrupted,omitempty"`
}

// A Pod is who has a volume.
type Pod struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// An Expansion is the last one of a volume.
type Expansion struct {
	Phase Phase `json:"phase"`
	Bytes int64 `json:"bytes"`
}

// An Operation is something under way.
type Operation struct {
	// Command is the callout, or what the daemon does by itself.
	Command string `json:"command"`
	Dir     string `json:"dir,omitempty"`
	// Request is the id in flexdriver's answer and in the log.
	Request string    `json:"request,omitempty"`
	Since   time.Time `json:"since"`
	// Begun is absent while the operation waits for another on the volume.
	Begun *time.Time `json:"begun,omitempty"`
}

// A Failure is a call that failed when it was made last. A volume whose set-up
// failed for good, and was undone, shows only here.
type Failure struct {
	FlexDriver       string `json:"flexDriver"`
	Command          string `json:"command"` // the callout
	PersistentVolume string `json:"persistentVolume,omitempty"`
	Dir              string `json:"dir,omitempty"`
	Pod              Pod    `json:"pod"`
	// Since and Last are when it failed first and last, Count how often.
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
	// Request, Code and Message are those of the last time.
	Request string `json:"request"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// A Lost is a volume that a pod has and that no record knows of. It is left in
// peace; the next mount of it makes a record, and an unmount needs none.
type Lost struct {
	FlexDriver       string `json:"flexDriver"`
	PersistentVolume string `json:"persistentVolume"`
	Dir              string `json:"dir"`
}

// A Tombstone is an unmount that was made while the daemon was down, and that
// the daemon has not worked off yet.
type Tombstone struct {
	FlexDriver string    `json:"flexDriver"`
	Dir        string    `json:"dir"`
	Since      time.Time `json:"since"`
}
