package faults

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// What a history tells.
const (
	daemonGone = "the daemon is gone"
	rebooted   = "nothing is mounted any more"
)

// An event is something that happened to the world.
type event struct {
	at   time.Time
	what string
}

// A history is what happened since the last time that all was well.
type history struct {
	mu     sync.Mutex
	events []event
	lost   []lostTarget
}

func (h *history) add(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{time.Now(), what})
}

func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events, h.lost = nil, nil
}

// lose notes what the caller cannot know of any more.
func (h *history) lose(volume, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = append(h.lost, lostTarget{time.Now(), volume, path})
}

func (h *history) lostTargets() []lostTarget {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// times returns when something happened.
func (h *history) times(what string) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var at []time.Time
	for _, e := range h.events {
		if e.what == what {
			at = append(at, e.at)
		}
	}
	return at
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var b strings.Builder
	for _, e := range h.events {
		fmt.Fprintf(&b, "%s %s\n", e.at.UTC().Format("15:04:05.000"), e.what)
	}
	return b.String()
}
