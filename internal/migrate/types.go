package migrate

import (
	"cmp"
	"time"
)

const (
	apiVersion = "flex2csi.io/v1alpha1"
	planKind   = "MigrationPlan"
)

// A Method is how a volume can become a CSI volume.
type Method string

// The methods.
const (
	// Live: under its running pods, or there are none.
	Live Method = "Live"
	// PodRestart: its one pod has to be stopped, and its owner re-creates it,
	// one pod at a time.
	PodRestart Method = "PodRestart"
	// Offline: its pods have to be stopped by a person before, and started after.
	Offline Method = "Offline"
	// No: not as things are.
	No Method = "No"
	// Unknown: a check had no answer, as from an API server that is overloaded or away.
	Unknown Method = "Unknown"
)

// String is for people.
func (v Method) String() string {
	return cmp.Or(map[Method]string{Live: "live", PodRestart: "after a pod restart", Offline: "offline", Unknown: "unknown"}[v], "no")
}

// A CheckStatus is what came of a check.
type CheckStatus string

// The statuses, from the harmless to the forbidding.
const (
	OK CheckStatus = "OK"
	// Note is something that will be seen, or is worth knowing.
	Note CheckStatus = "Note"
	// Decide wants a person to decide something, or to do it first.
	Decide CheckStatus = "Decide"
	// NotLive stands in the way as long as pods have the volume.
	NotLive CheckStatus = "NotLive"
	// Unanswered had no answer: nothing is said for the volume or against it.
	Unanswered CheckStatus = "Unknown"
	// Fails stands in the way in any case.
	Fails CheckStatus = "Fails"
)

// A Check is a precondition that was looked at.
type Check struct {
	Name   string      `json:"name"` // in kebab-case; docs/reference/checks.md has all
	Status CheckStatus `json:"status"`
	// Evidence is what was found, and where.
	Evidence string `json:"evidence"`
	// Do is what a person can do about it.
	Do string `json:"do,omitempty"`
}

// A change is where the replacement differs from the old volume.
type change struct {
	Field string `json:"field"`
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
	Why   string `json:"why,omitempty"`
}

// A Plan is what would become of all volumes that were selected.
type Plan struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Made       time.Time `json:"made"`
	Server     string    `json:"server"`
	// Checks are about the user who asks rather than about a volume.
	Checks  []Check          `json:"checks,omitempty"`
	Volumes []*PlannedVolume `json:"volumes"`
	// Related are objects that go with the volumes and are not replaced.
	Related []Related `json:"related,omitempty"`
}

// A PlannedVolume is the plan of one PersistentVolume.
type PlannedVolume struct {
	Name       string `json:"name"`
	Claim      string `json:"claim,omitempty"` // namespace/name
	FlexDriver string `json:"flexDriver,omitempty"`
	CSIDriver  string `json:"csiDriver,omitempty"`
	Handle     string `json:"volumeHandle,omitempty"`

	Method Method `json:"method"`
	// Migrated: it was a FlexVolume, and has become a CSI volume already.
	Migrated bool `json:"migrated,omitempty"`
	// Why no better method is possible.
	Why  []string `json:"why,omitempty"`
	Pods []Pod    `json:"pods,omitempty"`

	Checks  []Check  `json:"checks"`
	Changes []change `json:"changes,omitempty"`
	// Secrets have to be made before, by a person.
	Secrets []SecretCopy `json:"secrets,omitempty"`
	Expect  []string     `json:"expect,omitempty"`
	Steps   []Step       `json:"steps,omitempty"`

	Original Original `json:"original"`
	// Replacement is the complete manifest; nil if none could be made.
	Replacement *Manifest `json:"replacement,omitempty"`

	attaches bool // the CSI driver's volumes are attached
	byVendor bool // a vendor's driver in kube-controller-manager has it attached
	unready  bool // a node of its pods is not Ready, and can end none
}

// Original is what tells whether the volume is still what was planned for, and
// what is to be restored in the end.
type Original struct {
	UID             string   `json:"uid"`
	ResourceVersion string   `json:"resourceVersion"`
	ClaimUID        string   `json:"claimUID,omitempty"`
	Phase           string   `json:"phase,omitempty"`
	ReclaimPolicy   string   `json:"reclaimPolicy,omitempty"`
	Finalizers      []string `json:"finalizers,omitempty"`
	Provisioner     string   `json:"provisioner,omitempty"`

	object map[string]any // all of it
}

// A Pod is one that uses the claim and is not over.
type Pod struct {
	Name  string `json:"name"` // namespace/name
	UID   string `json:"uid"`
	Node  string `json:"node,omitempty"`
	Phase string `json:"phase"`
	// Owner is kind/name of what creates it again; empty: nothing does.
	Owner       string `json:"owner,omitempty"`
	Terminating bool   `json:"terminating,omitempty"`
	// GraceSeconds is its terminationGracePeriodSeconds.
	GraceSeconds int64 `json:"graceSeconds,omitempty"`
	// FSGroup: the kubelet gives the volume's files to it.
	FSGroup bool `json:"fsGroup,omitempty"`
}

// A SecretCopy is a Secret that the replacement names and that has to be made of
// another one, or of a file.
type SecretCopy struct {
	// Stages are the fields of spec.csi that name it.
	Stages []string `json:"stages"`
	From   string   `json:"from"` // namespace/name, or the file on the nodes
	To     string   `json:"to"`   // namespace/name
	// Keys are those of the new Secret, and for each the old one's.
	Keys map[string]string `json:"keys,omitempty"`
	// There says that it has been made.
	There bool `json:"there"`
	// Command makes it without showing what is in it.
	Command string `json:"command,omitempty"`

	optional []string // keys that the old one need not have
}

// Related is an object that goes with the volumes: a StorageClass, a claim
// template of a StatefulSet, a volume that a pod has without a
// PersistentVolume.
type Related struct {
	Kind string `json:"kind"`
	Name string `json:"name"` // namespace/name, and what of it
	What string `json:"what"`
	// Replacement is a manifest, or the part of one; it may be to be filled in.
	Replacement any      `json:"replacement,omitempty"`
	Steps       []string `json:"steps,omitempty"`
}
