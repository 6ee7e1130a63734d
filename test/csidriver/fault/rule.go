// Package fault makes a CSI driver fail as real ones do: late, not at all,
// wrongly, or dead. It is one gRPC interceptor that follows rules, from Go
// (Injector.Set) or from a file that is read again whenever it changes
// (FromFile), so that another process can be steered as well.
//
//	[
//	  {"method": "NodeStageVolume", "code": "ABORTED", "times": 2},
//	  {"method": "NodePublishVolume", "volume": "pv1", "code": "INTERNAL", "after": true, "times": 1},
//	  {"method": "Node*", "delay": "300ms"},
//	  {"method": "NodeUnstageVolume", "kill": true, "after": true, "skip": 1, "times": 1}
//	]
//
// The first rule that fits a call and has uses left decides.
package fault

import (
	"encoding/json"
	"fmt"
	"path"
	"time"

	"google.golang.org/grpc/codes"
)

// A Rule says what happens to some calls. Of the things that it asks for, the
// delay comes first, then the hang, the kill and the code.
type Rule struct {
	// Method is the name of an RPC, without its service, or a pattern for
	// path.Match; "" is all of them.
	Method string `json:"method,omitempty"`
	// Volume limits the rule to one volume_id (for CreateVolume: name).
	Volume string `json:"volume,omitempty"`
	// After has the work done first: "done, but answered with an error".
	After bool `json:"after,omitempty"`
	// Delay waits.
	Delay Duration `json:"delay,omitempty"`
	// Hang waits until the caller has left, or until the rules change.
	Hang bool `json:"hang,omitempty"`
	// Stubborn is a driver that does not notice that its caller has left: it
	// goes on waiting, and then goes on working. Its volume is busy meanwhile.
	Stubborn bool `json:"stubborn,omitempty"`
	// Kill ends the driver's process with SIGKILL.
	Kill bool `json:"kill,omitempty"`
	// Code is the answer; without After the work is not done then. OK is no
	// answer: the call goes its way.
	Code codes.Code `json:"code,omitempty"`
	// Message goes with the code.
	Message string `json:"message,omitempty"`
	// Skip lets so many calls pass that the rule would fit.
	Skip int `json:"skip,omitempty"`
	// Times is how often the rule is applied; 0 is always.
	Times int `json:"times,omitempty"`
}

func (r Rule) fits(method, volume string) bool {
	if r.Volume != "" && r.Volume != volume {
		return false
	}
	ok, err := path.Match(r.Method, method)
	return r.Method == "" || err == nil && ok
}

func (r Rule) check() error {
	if _, err := path.Match(r.Method, ""); err != nil {
		return fmt.Errorf("method %q: %w", r.Method, err)
	}
	return nil
}

// Duration is a time.Duration that is written as in "1.5s".
type Duration time.Duration

// MarshalText writes 1500 ms as 1.5s.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration does.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

func parse(b []byte) ([]Rule, error) {
	var rules []Rule
	if err := json.Unmarshal(b, &rules); err != nil {
		return nil, err
	}
	for _, r := range rules {
		if err := r.check(); err != nil {
			return nil, err
		}
	}
	return rules, nil
}
