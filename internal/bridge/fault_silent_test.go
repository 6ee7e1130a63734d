package bridge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// silentMounts are mounts of which all but those in answers take two seconds to say
// nothing, and no time when they are asked again, like those of internal/nodemounts.
type silentMounts struct {
	*fakeMounts
	answers     map[string]bool
	asked, most atomic.Int32
	before      sync.Map // paths
}

func (m *silentMounts) Healthy(path string) error {
	if m.answers[path] {
		return m.fakeMounts.Healthy(path)
	}
	now := m.asked.Add(1)
	defer m.asked.Add(-1)
	for most := m.most.Load(); now > most && !m.most.CompareAndSwap(most, now); most = m.most.Load() {
	}
	if _, again := m.before.LoadOrStore(path, true); !again {
		time.Sleep(2 * time.Second)
	}
	return fmt.Errorf("statfs %s: %w", path, os.ErrDeadlineExceeded)
}

// sharedUnmounts are pending unmounts that another process adds to.
type sharedUnmounts struct{ sync.Map }

func (g *sharedUnmounts) Has(dir string) (bool, error) { _, ok := g.Load(dir); return ok, nil }
func (g *sharedUnmounts) Remove(dir string) error      { g.Delete(dir); return nil }
func (g *sharedUnmounts) Dirs() (dirs []string) {
	g.Range(func(dir, _ any) bool { dirs = append(dirs, dir.(string)); return true })
	return dirs
}

// TestSilentServer: Reconcile looked at volumes one after another and waited two seconds
// for each path of a dead server. 250 volumes of it kept what other volumes waited for,
// releases, republishing and pending unmounts, for 17 minutes (N7).
func TestSilentServer(t *testing.T) {
	const (
		silent  = 250
		deleted = silent     // its pod was deleted
		before  = silent + 1 // flexdriver has unmounted it before the reconciler begins
		later   = silent + 2 // and this one meanwhile
	)
	mounts := &silentMounts{fakeMounts: &fakeMounts{mounted: map[string]bool{}}, answers: map[string]bool{}}
	dir, pending := t.TempDir(), &sharedUnmounts{}
	d := newFakeDriver(mounts.fakeMounts)
	b := &bridge.Bridge{
		Context: t.Context(), Mounts: mounts, State: noState{}, PendingUnmounts: pending, KubeletDir: dir, NodeName: "node-1", BootID: "boot-1",
		Drivers: bridge.Drivers{All: []*bridge.FlexDriver{{Name: flexDriver, CSIDriver: "csi.example.com", Service: d, Map: mapOptions}}},
	}
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o700); err != nil {
		t.Fatal(err)
	}
	var records []*volstate.Record
	for i := range later + 1 {
		r := &volstate.Record{Version: 1, BootID: "boot-1", FlexDriver: flexDriver, Driver: "csi.example.com", Handle: fmt.Sprint("h", i), Name: fmt.Sprint("pv", i)}
		r.Stage, r.StageMounted = volstate.Done, true
		r.StagingPath = b.KubeletStaging(r)
		pod := filepath.Join(dir, "pods", fmt.Sprint("p", i), "volumes/example.com~disk", r.Name)
		at := filepath.Join(dir, "pods", fmt.Sprint("p", i), "flex2csi/volumes/kubernetes.io~csi", r.Name, "mount")
		r.Targets = map[string]*volstate.Target{pod: {TargetPath: at, Publish: volstate.Done, Bound: true, Since: time.Now().Add(-time.Hour)}}
		for _, path := range []string{r.StagingPath, pod, at} {
			mounts.set(path, true)
			mounts.answers[path] = i >= silent
		}
		if i != deleted {
			if err := os.MkdirAll(filepath.Dir(pod), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		d.published[at], d.staged[r.Handle] = r.Handle, r.StagingPath
		records = append(records, r)
	}
	b.Restore(records)
	unmount := func(i int) { // as flexdriver does
		for pod := range records[i].Targets {
			pending.Store(pod, true)
			mounts.set(pod, false)
		}
	}
	unmount(before)
	begin := time.Now()
	released := func(i int, what string, within time.Duration) {
		t.Helper()
		for staged := true; staged; time.Sleep(time.Millisecond) {
			d.mu.Lock()
			staged = d.staged[fmt.Sprint("h", i)] != ""
			d.mu.Unlock()
			if time.Since(begin) > within {
				t.Fatalf("%s waits for %d silent volumes", what, silent)
			}
		}
		t.Logf("%s: released after %v", what, time.Since(begin))
	}
	var loop sync.WaitGroup
	loop.Go(func() { // as the daemon's loop, without its pause
		complete := func() {
			for _, pod := range pending.Dirs() {
				if err := b.CompleteUnmount(t.Context(), pod); err != nil {
					t.Error(err)
				}
			}
		}
		complete()
		b.Reconcile(t.Context())
		complete()
	})
	released(before, "a pending unmount", 5*time.Second)
	released(deleted, "the volume of a deleted pod", 5*time.Second)
	unmount(later)
	// None of these wait.
	begin = time.Now()
	b.Status()
	document := bridgestatus.NodeVolumesOf("node-1", "boot-1", "v", begin, b.Records(), b.KubeletStaging)
	for _, r := range b.Records() {
		b.KubeletTook(r)
	}
	if took := time.Since(begin); took > time.Second || len(document.Volumes) < silent {
		t.Errorf("status and report of %d volumes took %v", len(document.Volumes), took)
	}
	// One after another they took 500 s.
	released(later, "a pending unmount that comes meanwhile", 50*time.Second)
	loop.Wait()
	t.Logf("all looked at after %v, %d paths at a time", time.Since(begin), mounts.most.Load())
	for b.Busy() {
		time.Sleep(time.Millisecond)
	}
	dead := 0
	for _, r := range b.Records() {
		for _, at := range r.Targets {
			if at.Dead != "" {
				dead++
			}
		}
	}
	if calls := d.called(); dead != silent || len(d.published) != silent {
		t.Errorf("%d volumes are reported, %d published, want %d; called %s", dead, len(d.published), silent, calls)
	}
}
