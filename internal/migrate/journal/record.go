package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flex2csi/flex2csi/internal/report"
)

const (
	apiVersion = "flex2csi.io/v1alpha1"
	kind       = "Migration"
)

// A Record is all about the migration of one PersistentVolume.
type Record struct {
	APIVersion string `json:"apiVersion"` // Save sets these two
	Kind       string `json:"kind"`
	// Begun is when this migration began. Save sets it if it is not.
	Begun time.Time `json:"begun"`
	// Sequence is one more each time it is saved, which Save does.
	Sequence int64 `json:"sequence"`
	// ResourceVersion is that of the ConfigMap that was read or written last; empty: there
	// was none. Save writes over that one only.
	ResourceVersion string `json:"-"`
	// Digest is that of all the rest; only what is written has it.
	Digest string `json:"digest,omitempty"`

	Volume       string `json:"volume"`             // name of the PersistentVolume
	Claim        string `json:"claim,omitempty"`    // namespace/name; empty: it has none
	ClaimUID     string `json:"claimUID,omitempty"` //
	FlexDriver   string `json:"flexDriver"`
	CSIDriver    string `json:"csiDriver"`
	VolumeHandle string `json:"volumeHandle"`
	Attaches     bool   `json:"attaches"` // the CSI driver's volumes are attached
	// ByVendor: a vendor's driver in kube-controller-manager had it attached.
	ByVendor  bool      `json:"byVendor,omitempty"`
	Mode      Mode      `json:"mode"`
	Direction Direction `json:"direction"`
	Stage     Stage     `json:"stage"` // the last one that was reached

	// Flex is the FlexVolume as the API server has sent it, with the labels and annotations of
	// when it goes, CSI the replacement as it is created, ClaimObject the claim as it was.
	Flex        json.RawMessage `json:"flex,omitempty"`
	CSI         json.RawMessage `json:"csi,omitempty"`
	ClaimObject json.RawMessage `json:"claimObject,omitempty"`

	// The swap that is being made: which object goes, and what is created in its
	// place.
	FromUID             string          `json:"fromUID,omitempty"`
	FromResourceVersion string          `json:"fromResourceVersion,omitempty"`
	To                  json.RawMessage `json:"to,omitempty"`
	CreatedUID          string          `json:"createdUID,omitempty"`

	// Before is how far the migration had come that is being rolled back, if it was
	// not finished.
	Before Stage `json:"before,omitempty"`

	// Pods are those that had the volume at the beginning.
	Pods                 []Pod `json:"pods,omitempty"`
	RestoreReclaimPolicy bool  `json:"restoreReclaimPolicy,omitempty"`

	// Accept are the checks that a person has accepted.
	Accept []string `json:"accept,omitempty"`

	// PutBack is why the swap was given up half-way, and the volume that there
	// was is put back; empty: it was not.
	PutBack string `json:"putBack,omitempty"`
	// Trouble is the last error; empty: all is well.
	Trouble string `json:"trouble,omitempty"`
	// By is who migrates, user@host, and Version the program's.
	By      string `json:"by,omitempty"`
	Version string `json:"version,omitempty"`
	// Times are when each stage was reached in the present direction.
	Times map[Stage]time.Time `json:"times,omitempty"`
	// Requests are how many were made to the API server so far.
	Requests int `json:"requests,omitempty"`
}

// A Pod is one that had the volume at the beginning.
type Pod struct {
	Name  string `json:"name"` // namespace/name
	UID   string `json:"uid"`
	Node  string `json:"node,omitempty"`
	Owner string `json:"owner,omitempty"` // kind/name of the owner that re-creates it
}

// Unfinished reports whether something is still to be done.
func (r *Record) Unfinished() bool { return r.Stage != Finished }

// TakenBack reports whether it has ended as the FlexVolume that it was.
func (r *Record) TakenBack() bool { return r.Stage == Finished && r.Direction == ToFlexVolume }

// What a journal says, for errors.Is.
var (
	// ErrConflict: another program has written the record since it was read.
	ErrConflict = errors.New("another program has changed the journal meanwhile; check flex2csi migrate status, then resume")
	// ErrCopy: the copy could not be written.
	ErrCopy = errors.New("write its copy")
	// ErrMaybe: the first record may be written; it could not be read back.
	ErrMaybe = errors.New("it may be written")
	// ErrTooBig: the record is too big for a ConfigMap.
	ErrTooBig = errors.New("too big for a ConfigMap")
	// ErrUnreadable: there is a record, and it is not what was written.
	ErrUnreadable = errors.New("unreadable")
)

// A LostError says that a migration is not finished, and has no ConfigMap any more.
type LostError struct {
	Record *Record // as the copy has it, which may be an old one: nothing goes on by it
	copy   string  // path of the file
}

func (e *LostError) Error() string {
	return fmt.Sprintf("find the record of PersistentVolume %s: %s; %s, then flex2csi migrate resume or rollback", e.Record.Volume, e.Reason(), e.Restore())
}

// Reason says what is lost.
func (e *LostError) Reason() string {
	return fmt.Sprintf("ConfigMap %s was deleted, and by its copy the migration has come to %s and is not finished", ConfigMapName(e.Record.Volume), e.Record.Stage)
}

// Restore is the command that makes the ConfigMap of the copy.
func (e *LostError) Restore() string { return "kubectl create -f " + report.Quote(e.copy) }

// An UnreadError is about single records that cannot be read, or are lost. What else was asked for
// is returned with it: one record does not stop another volume.
type UnreadError struct {
	Lost   []*LostError
	Unread []error
}

func (e *UnreadError) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap returns one error for each record.
func (e *UnreadError) Unwrap() (all []error) {
	for _, l := range e.Lost {
		all = append(all, l)
	}
	return append(all, e.Unread...)
}

func unreadError(lost []*LostError, unread ...error) error {
	unread = slices.DeleteFunc(unread, func(err error) bool { return err == nil })
	if len(lost)+len(unread) == 0 {
		return nil
	}
	return &UnreadError{lost, unread}
}

// Unread separates the errors about single records from one of the whole.
func Unread(err error) (unread, whole error) {
	if errors.As(err, new(*UnreadError)) {
		return err, nil
	}
	return nil, err
}

// known is an error unless this program knows the words of a record.
func (r *Record) known() error {
	const do = "go on with the release of flex2csi that has written it"
	switch {
	case !slices.Contains([]Stage{Planned, BackedUp, Retained, Accepted, Stopped, Deleting, Deleted, Created, Bound, Attached, TakenOver, Finished}, r.Stage):
		return fmt.Errorf("%w: its stage is %q; %s", ErrUnreadable, r.Stage, do)
	case !slices.Contains([]Mode{Live, Rolling, Offline}, r.Mode):
		return fmt.Errorf("%w: its mode is %q; %s", ErrUnreadable, r.Mode, do)
	case !slices.Contains([]Direction{ToCSI, ToFlexVolume}, r.Direction):
		return fmt.Errorf("%w: its direction is %q; %s", ErrUnreadable, r.Direction, do)
	}
	return nil
}
