package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/report"
)

const situationKind = "MigrationStatus"

// A Situation is how the migrations of a cluster are.
type Situation struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Made       time.Time `json:"made"`
	Server     string    `json:"server"`
	// Holder migrates just now; empty: no process does.
	Holder  string         `json:"holder,omitempty"`
	Volumes []VolumeStatus `json:"volumes"`
	// Remaining are how many FlexVolumes there are by their driver.
	Remaining map[string]int `json:"remaining,omitempty"`
	// Problems are what could not be looked at.
	Problems []string `json:"problems,omitempty"`

	unread error // what of the journal could not be read
}

// A State is how a volume is on its way.
type State string

// The states.
const (
	// UnderWay: a process migrates just now.
	UnderWay State = "UnderWay"
	// Halted: it was begun, is not finished, and no process continues it.
	Halted State = "Halted"
	// WithoutVolume is Halted where there is no PersistentVolume.
	WithoutVolume State = "WithoutVolume"
	Migrated      State = "Migrated"
	// TakenBack: it is a FlexVolume again.
	TakenBack State = "TakenBack"
	// Removed: it was finished, and the volume is not there any more.
	Removed State = "Removed"
	// Contradictory: another client has made another volume of it.
	Contradictory State = "Contradictory"
	// NoRecord: it was begun, is not finished, and only the copy of its record is left.
	NoRecord State = "NoRecord"
)

// String is for people. What needs attention is in capitals.
func (s State) String() string {
	return cmp.Or(map[State]string{
		UnderWay: "under way", Halted: "HALTED", WithoutVolume: "NO VOLUME", Migrated: "migrated", TakenBack: "taken back", Removed: "removed", NoRecord: "NO RECORD",
	}[s], "CHANGED")
}

// A VolumeStatus is how one volume is.
type VolumeStatus struct {
	Name       string            `json:"name"`
	Claim      string            `json:"claim,omitempty"`
	FlexDriver string            `json:"flexDriver,omitempty"`
	CSIDriver  string            `json:"csiDriver,omitempty"`
	Handle     string            `json:"volumeHandle,omitempty"`
	State      State             `json:"state"`
	Direction  journal.Direction `json:"direction"`
	Mode       journal.Mode      `json:"mode,omitempty"`
	// Stage is empty where there is no record of it, only the volume.
	Stage journal.Stage `json:"stage,omitempty"`
	Since time.Time     `json:"since,omitzero"`
	// Now is what the PersistentVolume is: FlexVolume, CSI, none.
	Now       string     `json:"now"`
	OldMounts []OldMount `json:"oldMounts,omitempty"`
	Trouble   string     `json:"trouble,omitempty"`
	// Next is what a person does; empty: nothing.
	Next     string `json:"next,omitempty"`
	By       string `json:"by,omitempty"`
	Requests int    `json:"requests,omitempty"`
	// LostSeconds is for how long the claim was Lost in the present direction; 0: it was
	// not, or is now, or that is not known.
	LostSeconds float64 `json:"lostSeconds,omitempty"`
}

// Status looks at all volumes that were migrated, are on their way, or were
// taken back.
func (observer *Observer) Status(ctx context.Context) (*Situation, error) {
	s, err := observer.observe(ctx)
	if err != nil {
		return nil, err
	}
	t := &Situation{APIVersion: apiVersion, Kind: situationKind, Made: s.now, Server: observer.Server, Holder: observer.holder(ctx, s), Volumes: []VolumeStatus{}, Remaining: map[string]int{}}
	for _, name := range s.names() {
		t.Volumes = append(t.Volumes, s.status(ctx, name, t.Holder))
	}
	for _, pv := range s.volumes {
		if driver := pv.flexDriver(); driver != "" {
			t.Remaining[driver]++
		}
	}
	t.Problems, t.unread = s.problems, s.unread
	return t, ctx.Err()
}

// Halted are the volumes with a migration that was begun, is not finished, and that no
// process continues. It is quick, for commands with another purpose.
func (observer *Observer) Halted(ctx context.Context) (all []VolumeStatus, err error) {
	records, err := observer.Journal.List(ctx)
	if _, err := journal.Unread(err); err != nil {
		return nil, err
	}
	s := &observed{w: newWorld(observer.Client, nil), now: observer.Now().UTC(), volumes: map[string]*volume{}, records: map[string]*journal.Record{}}
	for _, r := range records {
		if !r.Unfinished() {
			continue
		}
		pv, err := s.w.volume(ctx, r.Volume)
		if err != nil {
			return nil, err
		}
		s.volumes[r.Volume], s.records[r.Volume] = pv, r
	}
	holder := ""
	if len(s.records) > 0 {
		holder = observer.holder(ctx, s)
	}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if v := s.status(ctx, name, holder); v.State == Halted || v.State == WithoutVolume {
			all = append(all, v)
		}
	}
	return all, nil
}

// names are the volumes that have to do with migrations.
func (seen *observed) names() []string {
	all := map[string]bool{}
	for name := range seen.records {
		all[name] = true
	}
	for name := range seen.lost {
		all[name] = true
	}
	for name, pv := range seen.volumes {
		if migrated(pv) {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (seen *observed) status(ctx context.Context, name, holder string) VolumeStatus {
	r, pv, lost := seen.records[name], seen.volumes[name], seen.lost[name]
	if lost != nil {
		r = lost.Record
	}
	if r != nil && r.TakenBack() && migrated(pv) { // again, with another journal
		r = nil
	}
	v := VolumeStatus{Name: name, Now: source(pv), Direction: journal.ToCSI}
	if r != nil {
		v.Claim, v.FlexDriver, v.CSIDriver, v.Handle = r.Claim, r.FlexDriver, r.CSIDriver, r.VolumeHandle
		v.Direction, v.Mode, v.Stage, v.Since = r.Direction, r.Mode, r.Stage, r.Times[r.Stage]
		v.Trouble, v.By, v.Requests = r.Trouble, r.By, r.Requests
		v.LostSeconds = lostFor(r).Seconds()
	} else {
		v.Claim, v.FlexDriver, v.Since = pv.claim(), pv.Annotations[FlexDriverAnnotation], pv.CreationTimestamp.UTC()
		v.CSIDriver, v.Handle = pv.csi()
	}
	if v.State = state(r, pv, holder); lost != nil {
		v.State = NoRecord
	}
	if v.State == TakenBack && r.PutBack != rolledBack && r.PutBack != "" {
		v.trouble("put back by itself: " + r.PutBack)
	}
	if v.Now == "CSI" {
		namespace, _, _ := strings.Cut(v.Claim, "/")
		v.OldMounts = seen.mounts(ctx, v.CSIDriver, v.Handle, namespace)
	}
	v.advise(lost)
	return v
}

// state compares what was written down with the cluster.
func state(r *journal.Record, pv *volume, holder string) State {
	now := source(pv)
	switch {
	case r == nil:
		return Migrated
	case r.Unfinished() && holder != "":
		return UnderWay
	case r.Unfinished() && pv == nil:
		return WithoutVolume
	case r.Unfinished():
		return Halted
	case pv == nil:
		return Removed
	case r.Direction == journal.ToCSI && now == "CSI":
		return Migrated
	case r.Direction == journal.ToFlexVolume && now == "FlexVolume":
		return TakenBack
	}
	return Contradictory
}

// advise says what is wrong and what a person does about it.
func (v *VolumeStatus) advise(lost *journal.LostError) {
	goOn := "flex2csi migrate resume " + report.Quote(v.Name)
	back := "flex2csi migrate rollback " + report.Quote(v.Name)
	if v.Direction == journal.ToFlexVolume {
		goOn += " makes the FlexVolume of it again"
	} else {
		goOn += " goes on, " + back + " goes back"
	}
	switch v.State {
	case WithoutVolume:
		v.trouble("there is no PersistentVolume now: the claim is Lost. Pods that run go on, but if the kubelet of their node is restarted it may unmount the volume under them")
		v.Next = "at once: " + goOn
	case Halted:
		v.Next = goOn
	case NoRecord:
		v.trouble(lost.Reason())
		v.Next = lost.Restore() + " puts it back, then " + goOn
		if v.Now == "none" {
			v.trouble("there is no PersistentVolume now: the claim is Lost")
			v.Next = "at once: " + v.Next
		}
	case Contradictory:
		v.trouble(fmt.Sprintf("it was finished as %s, and is %s now: another client has replaced it", volumeType(v.Direction), v.Now))
		v.Next = "find out who: kubectl get pv " + report.Quote(v.Name) + " -o yaml --show-managed-fields; then migrate it once more, or leave it"
	case Migrated:
		if len(v.OldMounts) > 0 {
			v.Next = fmt.Sprintf("nothing: %d mounts of the bridge stay until their pods are restarted, whenever that suits", len(v.OldMounts))
		}
	}
}

func (v *VolumeStatus) trouble(what string) {
	if v.Trouble != "" {
		what += "; " + v.Trouble
	}
	v.Trouble = what
}

func volumeType(d journal.Direction) string {
	if d == journal.ToFlexVolume {
		return "FlexVolume"
	}
	return "CSI"
}

// Filter returns the situation of some volumes, by their names or claims; names
// that are none are returned as well.
func (situation *Situation) Filter(names []string) (*Situation, []string) {
	if len(names) == 0 {
		return situation, nil
	}
	shown, missing := *situation, slices.Clone(names)
	shown.Volumes = []VolumeStatus{}
	for _, v := range situation.Volumes {
		if slices.Contains(names, v.Name) || (v.Claim != "" && slices.Contains(names, v.Claim)) {
			shown.Volumes = append(shown.Volumes, v)
			missing = slices.DeleteFunc(missing, func(n string) bool { return n == v.Name || n == v.Claim })
		}
	}
	return &shown, missing
}

// Urgent is an error if a claim has no volume and no process gives it one, or if that is not
// known.
func (situation *Situation) Urgent() error {
	if names := situation.withoutVolume(); len(names) > 0 {
		return errors.Join(fmt.Errorf("%s stopped where there is no PersistentVolume: flex2csi migrate resume, or rollback", list(names)), situation.unread)
	}
	return situation.unread
}

// withoutVolume are the volumes where a claim has none.
func (situation *Situation) withoutVolume() (names []string) {
	for i := range situation.Volumes {
		if situation.Volumes[i].State == WithoutVolume {
			names = append(names, situation.Volumes[i].Name)
		}
	}
	return names
}

// ObjectNames are the volumes, as type/name.
func (situation *Situation) ObjectNames() (names []string) {
	for i := range situation.Volumes {
		names = append(names, "persistentvolume/"+situation.Volumes[i].Name)
	}
	return names
}
