// Package volstate keeps what the bridge must not forget: one small JSON file
// for each volume, written before an RPC says what is intended and after it
// what became of it. A person can read them with cat.
//
// A file that cannot be read is put aside and reported, and takes no other
// with it. No secret is ever in one.
package volstate

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

// A Phase is how far one half of a life cycle is.
type Phase string

// The phases. Doing and Undoing are uncertain until there is a final answer: the RPC
// may have been sent, may be under way, or may be done.
const (
	None    Phase = ""
	Doing   Phase = "doing"
	Done    Phase = "done"
	Undoing Phase = "undoing"
)

// An Owner is who ends a volume on this node when its last FlexVolume is gone: who
// unstages and detaches it.
type Owner string

// The owners.
const (
	// Ours: the bridge has it alone.
	Ours Owner = ""
	// Unclear: the kubelet's CSI plugin has the volume staged, or is about to, and
	// has it for no pod: it begins, it is about to end, or it has failed and will
	// not come back.
	Unclear Owner = "unclear"
	// Kubelet: its CSI plugin has the volume for a pod.
	Kubelet Owner = "kubelet"
)

// A Record is all that is known of a volume on this node.
type Record struct {
	// Version of the format.
	Version int `json:"version"`
	// BootID is that of the boot in which the record was written: mounts do
	// not outlive it, attachments do.
	BootID string `json:"bootID"`

	FlexDriver string `json:"flexDriver"`
	Driver     string `json:"csiDriver"`
	Handle     string `json:"volumeHandle"`
	Name       string `json:"persistentVolume"`
	// Endpoints are where the CSI driver was when the volume was set up, for its
	// tear-down without the configuration. Older records have none.
	Endpoints *csivol.Endpoints `json:"endpoints,omitempty"`
	// Inline says that a call was let in for no PersistentVolume, since the
	// configuration allows that: Name is what a pod calls the volume.
	Inline bool `json:"inline,omitempty"`

	// Context and the capability are as they were sent: a repeated or reversed
	// call must say the same.
	Context    map[string]string `json:"volumeContext,omitempty"`
	FSType     string            `json:"fsType,omitempty"`
	MountFlags []string          `json:"mountFlags,omitempty"`
	AccessMode csivol.AccessMode `json:"accessMode,omitempty"`
	// AccessModes are those of the PersistentVolume, for an attachment that has to
	// be asked for once more.
	AccessModes []csivol.AccessMode `json:"accessModes,omitempty"`
	MountGroup  string              `json:"volumeMountGroup,omitempty"`

	Attach     Phase  `json:"attach,omitempty"`
	Attachment string `json:"attachment,omitempty"` // who asked for it: mount (node), or attach (control plane)
	// Object is the name of the VolumeAttachment; empty: the volume is attached
	// through its controller service. It is detached the way that it was attached.
	Object string `json:"volumeAttachment,omitempty"`
	// Foreign says that another component has made the Object: we do not delete it.
	Foreign        bool              `json:"foreign,omitempty"`
	NodeID         string            `json:"nodeID,omitempty"`
	PublishContext map[string]string `json:"publishContext,omitempty"`

	Stage       Phase  `json:"stage,omitempty"`
	StagingPath string `json:"stagingTargetPath,omitempty"`
	// StageMounted says that the driver has mounted something there, which may
	// vanish: not all do.
	StageMounted bool `json:"stageMounted,omitempty"`

	// Device is the kubelet's device mount path with our marker; attach:true.
	Device string `json:"deviceMountPath,omitempty"`

	// Targets by the kubelet's directory. A volume is staged while it has any.
	Targets map[string]*Target `json:"targets,omitempty"`

	// Size in bytes that an expansion is to reach, or has reached.
	Expand     Phase `json:"expand,omitempty"`
	ExpandSize int64 `json:"expandSize,omitempty"`

	// Owner is who ends the volume on this node.
	Owner Owner `json:"owner,omitempty"`
	// TakenOver is only in files, for daemons that know no Owner: it is not ours.
	TakenOver bool `json:"takenOver,omitempty"`

	// StageDead is why what is mounted at StagingPath does not work any more.
	StageDead string `json:"stageDead,omitempty"`

	LastError string    `json:"lastError,omitempty"`
	Changed   time.Time `json:"changed"`

	// Recovered says that this is the version before the last, which cannot be
	// read: one step, whichever, has been taken since.
	Recovered bool `json:"-"`
}

// A Target is one pod's use of the volume.
type Target struct {
	// Private is where the CSI driver publishes to. Empty: into the kubelet's
	// directory itself.
	Private  string     `json:"targetPath,omitempty"`
	Pod      csivol.Pod `json:"pod"`
	ReadOnly bool       `json:"readOnly,omitempty"`
	FSGroup  *int64     `json:"fsGroup,omitempty"`
	Publish  Phase      `json:"publish,omitempty"`
	// Bound says that the private target was bound onto the kubelet's
	// directory: the pod has the volume.
	Bound bool `json:"bound,omitempty"`
	// Dead is why what the pod has does not work any more.
	Dead string `json:"dead,omitempty"`
	// Since is when the target entered its phase, for messages about operations that
	// are stuck and for targets that are not requested again.
	Since     time.Time `json:"since"`
	LastError string    `json:"lastError,omitempty"`
}

// version is that of records written now. Older ones are read.
const version = 1

// Key is what the driver knows the volume by.
func (r *Record) Key() csivol.Key { return csivol.Key{Driver: r.Driver, Handle: r.Handle} }

// Idle reports whether nothing is held any more, so that the record can go.
func (r *Record) Idle() bool {
	return len(r.Targets) == 0 && r.Device == "" && r.Attach == None && r.Stage == None
}

// DeadMounts counts the mounts that do not work any more.
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

// InDoubt reports whether a step of the record is neither done nor undone.
func (r *Record) InDoubt() bool {
	doubt := func(p Phase) bool { return p == Doing || p == Undoing }
	for _, t := range r.Targets {
		if doubt(t.Publish) {
			return true
		}
	}
	return doubt(r.Attach) || doubt(r.Stage) || doubt(r.Expand)
}

// Dirs are the kubelet's directories that belong to the volume.
func (r *Record) Dirs() []string {
	dirs := slices.Collect(maps.Keys(r.Targets))
	if r.Device != "" {
		dirs = append(dirs, r.Device)
	}
	return dirs
}

// Clone returns a copy that shares nothing which changes.
func (r *Record) Clone() *Record {
	c := *r
	c.Targets = make(map[string]*Target, len(r.Targets))
	for dir, t := range r.Targets {
		copied := *t
		c.Targets[dir] = &copied
	}
	return &c
}

// Same reports whether two records of a volume say the same, whenever they
// were written.
func (r *Record) Same(other *Record) bool {
	a, b := r.Clone(), other.Clone()
	a.Changed, a.Version, a.BootID = b.Changed, b.Version, b.BootID
	return reflect.DeepEqual(a, b)
}
