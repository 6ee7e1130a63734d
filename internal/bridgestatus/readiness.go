package bridgestatus

import "time"

// ReadinessKind names the document that answers whether calls are answered.
const ReadinessKind = "Readiness"

// State is what a daemon does.
type State string

// The states, in the order in which they follow each other.
const (
	Starting State = "Starting"
	// StandingBy: another process has the socket and the records. This one goes
	// on when that one ends.
	StandingBy State = "StandingBy"
	// TakingOver: it has the socket. Calls that come wait for it to have the
	// records as well, on which the one before completes what it has begun.
	TakingOver State = "TakingOver"
	Serving    State = "Serving"
	// Draining: it was told to end, and has calls under way. It has given the
	// socket up.
	Draining State = "Draining"
)

// Readiness says how one process is. Its form changes only by fields that are
// added, until the version does.
type Readiness struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Time       time.Time `json:"time"`
	NodeName   string    `json:"nodeName,omitempty"` // empty: the controller
	Version    string    `json:"version"`
	Started    time.Time `json:"started"`
	State      State     `json:"state"`
	// Ready: calls are answered, by this process or by the one that it stands
	// by for. An upgrade may go on.
	Ready bool `json:"ready"`
	// Live is false where a restart of this process would help.
	Live bool `json:"live"`
	// Message is one sentence for people.
	Message string `json:"message"`
	// CordonedSince is when it was told to set up no new volume.
	CordonedSince *time.Time `json:"cordonedSince,omitempty"`
	// SettingUp is how many volumes are being set up now.
	SettingUp int `json:"settingUp"`
	// Drivers are those of the configuration. One whose CSI driver is not
	// connected does not make the daemon less ready: calls for the others are
	// answered.
	Drivers []Driver `json:"drivers"`
}
