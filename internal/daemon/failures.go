package daemon

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// failures are the calls that failed when they were made last. A call that failed with
// a final error leaves no record of its volume, but its pod waits until the kubelet
// calls again, up to two minutes later. flex2csi status shows the reason meanwhile.
type failures struct {
	mu  sync.Mutex
	all map[failureKey]*bridgestatus.Failure
}

// A failureKey is the subject of a call. Any success with the same key ends a failure:
// an unmount also ends that of a mount.
type failureKey struct{ driver, about string }

const (
	// failuresKept bounds their number; the oldest are dropped.
	failuresKept = 100
	// failureLife is how long a failure without a retry is shown: then no pod needs
	// the volume any more.
	failureLife = 10 * time.Minute
	// failureText bounds a message, as the kubelet's events do.
	failureText = 1024
)

// note records the result of a call.
func (f *failures) note(r *wire.Request, s flex.DriverStatus, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Status != flex.StatusFailure && len(f.all) == 0 {
		return // nearly always, and without parsing the arguments again
	}
	c, err := flex.ParseCall(r.Argv)
	if err != nil {
		return // the log has it; its volume is not known
	}
	key := failureKey{r.Driver, cmp.Or(c.Dir, c.VolumeName)}
	if s.Status != flex.StatusFailure {
		delete(f.all, key)
		return
	}
	if f.all == nil {
		f.all = map[failureKey]*bridgestatus.Failure{}
	}
	if f.all[key] == nil {
		f.all[key] = &bridgestatus.Failure{FlexDriver: r.Driver, Since: now.UTC()}
	}
	describe(f.all[key], c, r.ID, s, now)
	f.trim()
}

func describe(f *bridgestatus.Failure, c *flex.Call, request string, s flex.DriverStatus, now time.Time) {
	f.Command, f.Request, f.Code, f.Message = string(c.Command), request, string(s.Code), s.Message
	if len(f.Message) > failureText {
		f.Message = strings.ToValidUTF8(f.Message[:failureText], "") + "…"
	}
	f.Count++
	f.Last = now.UTC()
	f.Dir, f.PersistentVolume = c.Dir, c.VolumeName
	f.Pod = bridgestatus.PodRef{Namespace: c.Options.PodNamespace, Name: c.Options.PodName, UID: c.Options.PodUID}
	if place, err := kubeletdir.Parse(c.Dir); err == nil {
		f.PersistentVolume, f.Pod.UID = place.Volume, place.PodUID
	}
}

func (f *failures) trim() {
	if len(f.all) <= failuresKept {
		return
	}
	var oldest failureKey
	for key, failure := range f.all {
		if o := f.all[oldest]; o == nil || failure.Last.Before(o.Last) {
			oldest = key
		}
	}
	delete(f.all, oldest)
}

// list returns recent failures, the latest first.
func (f *failures) list(now time.Time) []bridgestatus.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []bridgestatus.Failure{}
	for key, failure := range f.all {
		if now.Sub(failure.Last) > failureLife {
			delete(f.all, key)
			continue
		}
		all = append(all, *failure)
	}
	slices.SortFunc(all, func(a, b bridgestatus.Failure) int { return b.Last.Compare(a.Last) })
	return all
}
