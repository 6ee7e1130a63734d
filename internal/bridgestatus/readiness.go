package bridgestatus

import "time"

// ReadinessKind is the kind of a Readiness.
const ReadinessKind = "Readiness"

// State is the state of a daemon.
type State string

// The states, in their order.
const (
	Starting State = "Starting"
	// StandingBy: another process has the socket and the records. This one continues
	// when that one ends.
	StandingBy State = "StandingBy"
	// TakingOver: it has the socket. Calls wait until the process before has completed
	// its operations and released the records.
	TakingOver State = "TakingOver"
	Serving    State = "Serving"
	// Draining: it is shutting down, and completes its calls. It has closed the socket.
	Draining State = "Draining"
)

// Readiness is the state of one process. Until the version changes, fields are only
// added.
type Readiness struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Time       time.Time `json:"time"`
	NodeName   string    `json:"nodeName,omitempty"` // empty: the controller
	Version    string    `json:"version"`
	Started    time.Time `json:"started"`
	State      State     `json:"state"`
	// Ready: calls are answered, by this process or by the one that it stands by for.
	// An upgrade may continue.
	Ready bool `json:"ready"`
	// Live is false where a restart of this process would help.
	Live bool `json:"live"`
	// Message is one sentence.
	Message string `json:"message"`
	// CordonedSince is since when it sets up no new volumes.
	CordonedSince *time.Time `json:"cordonedSince,omitempty"`
	// SettingUp counts the volumes that are being set up.
	SettingUp int `json:"settingUp"`
	// Drivers are those of the configuration. Readiness does not depend on the
	// connections to CSI drivers: calls for other drivers are answered.
	Drivers []DriverStatus `json:"drivers"`
}
