package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
)

// A Call is one call of the driver.
type Call struct {
	Method, Volume, Path, Node string
	Start                      time.Time
	// End is zero, and what follows empty, if the driver died on it.
	End time.Time
	// Code is what was answered, as "OK" or "Aborted".
	Code, Message string
	// Left says that the caller did not wait for the answer.
	Left bool
	// Work is what the work ended with; "" if it was not begun.
	Work string
}

// Ended reports whether the driver lived to answer.
func (c Call) Ended() bool { return !c.End.IsZero() }

// Done reports whether the driver did what it was called for, whatever it
// answered.
func (c Call) Done() bool { return c.Work == codes.OK.String() }

// Read returns the calls in the order in which they came. A last line that is
// being written is left out, and one that a driver was killed over: a call that was not
// written down was not begun.
func Read(name string) ([]Call, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var calls []Call
	index := map[string]int{}
	for text := range bytes.Lines(b) {
		if !bytes.HasSuffix(text, []byte("\n")) {
			break
		}
		var l line
		err := json.NewDecoder(bytes.NewReader(bytes.TrimSuffix(text, []byte("\n")))).Decode(&l)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", name, text, err)
		}
		if l.Begin {
			index[l.ID] = len(calls)
			calls = append(calls, Call{Method: l.Method, Volume: l.Volume, Path: l.Path, Node: l.Node, Start: l.Time})
			continue
		}
		if n, ok := index[l.ID]; ok {
			c := &calls[n]
			c.End, c.Code, c.Message, c.Work, c.Left = l.Time, l.Code, l.Message, l.Work, l.Left
		}
	}
	return calls, nil
}

// Leftovers says what was made and never undone, each as "NodeStageVolume
// VOLUME PATH", or with the node for ControllerPublishVolume. A call that the
// driver died on counts as done if it makes something, and as not done if it
// undoes something.
func Leftovers(list []Call) []string {
	type thing struct{ method, volume, where string }
	left := map[thing]bool{}
	for _, c := range list {
		t := thing{c.Method, c.Volume, c.Path + c.Node}
		switch c.Method {
		case "ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume":
			if c.Done() || !c.Ended() {
				left[t] = true
			}
			continue
		case "ControllerUnpublishVolume":
			t.method = "ControllerPublishVolume"
		case "NodeUnstageVolume":
			t.method = "NodeStageVolume"
		case "NodeUnpublishVolume":
			t.method = "NodePublishVolume"
		}
		if c.Done() {
			maps.DeleteFunc(left, func(l thing, _ bool) bool {
				// An empty node_id means all nodes.
				return l == t || l.method == t.method && l.volume == t.volume && t.where == ""
			})
		}
	}
	var names []string
	for l := range left {
		names = append(names, l.method+" "+l.volume+" "+l.where)
	}
	slices.Sort(names)
	return names
}
