// Package volstate has the persistent records of the bridge: a small JSON file for each
// volume. It is written before an RPC, with the intent, and after it, with the result.
//
// A file that cannot be read is put aside and reported, without an effect on others. No file
// has a secret.
package volstate

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// A Phase is the progress of a step and its reversal.
type Phase string

// The phases. Doing and Undoing are uncertain until there is a final answer: the RPC
// may have been sent, may be under way, or may be done.
const (
	None    Phase = ""
	Doing   Phase = "doing"
	Done    Phase = "done"
	Undoing Phase = "undoing"
)

// An Owner unstages and detaches a volume on this node when its last FlexVolume was
// unmounted.
type Owner string

// The owners.
const (
	// Ours: the bridge has it alone.
	Ours Owner = ""
	// Unclear: the kubelet's CSI plugin has the volume staged, or is about to, and has it
	// for no pod: it is setting up or tearing down, or has failed and will not retry.
	Unclear Owner = "unclear"
	// Kubelet: its CSI plugin has the volume for a pod.
	Kubelet Owner = "kubelet"
)

// A Record is the state of a volume on this node.
type Record struct {
	// Version of the format.
	Version int `json:"version"`
	// BootID is the node's boot ID when the record was written: mounts end with the
	// boot, attachments do not.
	BootID string `json:"bootID"`

	FlexDriver string `json:"flexDriver"`
	Driver     string `json:"csiDriver"`
	Handle     string `json:"volumeHandle"`
	Name       string `json:"persistentVolume"`
	// Endpoints of the CSI driver at the set-up, for a tear-down without the
	// configuration.
	Endpoints *csivol.Endpoints `json:"endpoints,omitempty"`
	// Inline says that there is no PersistentVolume, which the configuration allows:
	// Name is the pod's name of the volume.
	Inline bool `json:"inline,omitempty"`

	// Context and the capability as they were sent: a repeated or reversed call must
	// send the same.
	Context    map[string]string `json:"volumeContext,omitempty"`
	FSType     string            `json:"fsType,omitempty"`
	MountFlags []string          `json:"mountFlags,omitempty"`
	AccessMode csivol.AccessMode `json:"accessMode,omitempty"`
	// AccessModes are those of the PersistentVolume, for an attachment that has to be
	// created once more.
	AccessModes []csivol.AccessMode `json:"accessModes,omitempty"`
	MountGroup  string              `json:"volumeMountGroup,omitempty"`

	Attach     Phase  `json:"attach,omitempty"`
	Attachment string `json:"attachment,omitempty"` // who asked for it: mount (node), or attach (control plane)
	// Object is the name of the VolumeAttachment; empty: attached through the controller
	// service. The volume is detached the same way.
	Object string `json:"volumeAttachment,omitempty"`
	// Request is in the Object, if this record has made it.
	Request string `json:"attachRequest,omitempty"`
	// Unmanaged says that another component has made the Object: we do not delete it.
	Unmanaged      bool              `json:"unmanaged,omitempty"`
	NodeID         string            `json:"nodeID,omitempty"`
	PublishContext map[string]string `json:"publishContext,omitempty"`

	Stage       Phase  `json:"stage,omitempty"`
	StagingPath string `json:"stagingTargetPath,omitempty"`
	// StageMounted says that the driver has mounted something at StagingPath, which not
	// all drivers do.
	StageMounted bool `json:"stageMounted,omitempty"`

	// Device is the device mount path with our marker; attach:true.
	Device string `json:"deviceMountPath,omitempty"`

	// Targets by the kubelet's directory. A volume is staged while it has any.
	Targets map[string]*Target `json:"targets,omitempty"`

	// Size in bytes that an expansion is to reach, or has reached.
	Expand     Phase `json:"expand,omitempty"`
	ExpandSize int64 `json:"expandSize,omitempty"`

	// Owner unstages and detaches the volume.
	Owner Owner `json:"owner,omitempty"`

	// StageDead is why the mount at StagingPath does not work any more.
	StageDead string `json:"stageDead,omitempty"`

	LastError string    `json:"lastError,omitempty"`
	Changed   time.Time `json:"changed"`

	// Recovered says that the last version cannot be read, and this is the one before:
	// an unknown step was taken since.
	Recovered bool `json:"-"`
}

// A Target is one pod's use of the volume.
type Target struct {
	// TargetPath is the CSI driver's target path. Empty: the kubelet's directory itself.
	TargetPath string     `json:"targetPath,omitempty"`
	Pod        csivol.Pod `json:"pod"`
	ReadOnly   bool       `json:"readOnly,omitempty"`
	FSGroup    *int64     `json:"fsGroup,omitempty"`
	Publish    Phase      `json:"publish,omitempty"`
	// Bound says that the target path was bound onto the kubelet's
	// directory: the pod has the volume.
	Bound bool `json:"bound,omitempty"`
	// Dead is why the pod's mount does not work any more.
	Dead string `json:"dead,omitempty"`
	// Since is when the target entered its phase, for messages about operations that
	// are stuck and for targets that are not requested again.
	Since     time.Time `json:"since"`
	LastError string    `json:"lastError,omitempty"`
}

// version of the format.
const version = 1

// Key identifies the volume.
func (r *Record) Key() csivol.Key { return csivol.Key{Driver: r.Driver, Handle: r.Handle} }

// Idle reports whether the node has nothing of the volume, so that the record can be deleted.
func (r *Record) Idle() bool {
	return len(r.Targets) == 0 && r.Device == "" && r.Attach == None && r.Stage == None
}

// DeadMounts counts the dead mounts.
func (r *Record) DeadMounts() (count int) {
	if r.StageDead != "" {
		count++
	}
	for _, t := range r.Targets {
		if t.Dead != "" {
			count++
		}
	}
	return count
}

// Uncertain reports whether a step of the record is neither done nor undone.
func (r *Record) Uncertain() bool {
	doubt := func(p Phase) bool { return p == Doing || p == Undoing }
	for _, t := range r.Targets {
		if doubt(t.Publish) {
			return true
		}
	}
	return doubt(r.Attach) || doubt(r.Stage) || doubt(r.Expand)
}

// Dirs returns the kubelet's directories of the volume.
func (r *Record) Dirs() []string {
	dirs := slices.Collect(maps.Keys(r.Targets))
	if r.Device != "" {
		dirs = append(dirs, r.Device)
	}
	return dirs
}

// Clone returns a copy that shares nothing mutable.
func (r *Record) Clone() *Record {
	c := *r
	c.Targets = make(map[string]*Target, len(r.Targets))
	for dir, t := range r.Targets {
		copied := *t
		c.Targets[dir] = &copied
	}
	return &c
}

// Same reports whether two records of a volume are equal except for their time.
func (r *Record) Same(other *Record) bool {
	a, b := r.Clone(), other.Clone()
	a.Changed, a.Version, a.BootID = b.Changed, b.Version, b.BootID
	return reflect.DeepEqual(a, b)
}
