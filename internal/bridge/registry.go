package bridge

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// A registry is what this process knows of all volumes, in memory. The zero value is
// empty and ready for use.
type registry struct {
	mu      sync.Mutex // guards all fields
	volumes map[csivol.Key]*volume
	byDir   map[string]csivol.Key
	// unmarked are device mount paths of which the reconciler has removed the marker.
	unmarked map[string]bool
	lost     map[persistentVolume][]string // directories of volumes without a record
}

// A persistentVolume is what the path of a pod's directory tells.
type persistentVolume struct{ flexDriver, name string }

// volume returns the volume with a key, which may be new and without a record.
func (g *registry) volume(key csivol.Key) *volume {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.volumeLocked(key)
}

func (g *registry) volumeLocked(key csivol.Key) *volume {
	if g.volumes == nil {
		g.volumes = map[csivol.Key]*volume{}
	}
	v, ok := g.volumes[key]
	if !ok {
		v = &volume{
			key:    key,
			record: &volstate.Record{Driver: key.Driver, Handle: key.Handle},
		}
		g.volumes[key] = v
	}
	return v
}

// enqueue gives an operation the volume's next turn, or joins the same one that is under
// way.
func (g *registry) enqueue(ctx context.Context, key csivol.Key, op operation) (v *volume, p *inProgress, joined bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v = g.volumeLocked(key)
	volumelog.Learn(ctx, v.subject(op.dir)) // for the caller's lines, too
	if latest := v.latest(op.dir); latest != nil && latest.operation == op {
		latest.callers.Add(1)
		latest.waitUntil(ctx)
		return v, latest, true
	}
	p = &inProgress{operation: op, before: v.lastTurn, over: make(chan struct{}), subject: volumelog.From(ctx), since: time.Now(), done: make(chan struct{})}
	p.callers.Store(1)
	p.waitUntil(ctx)
	v.ops, v.lastTurn = append(v.ops, p), p.over
	return v, p, false
}

// latest returns what was last asked for a directory. Only that may be joined:
// a mount that comes after an unmount is not the mount before it.
func (v *volume) latest(dir string) *inProgress {
	for _, p := range slices.Backward(v.ops) {
		if p.dir == dir {
			return p
		}
	}
	return nil
}

// finish removes an operation from its volume, and the volume from the list if nothing
// is left of it. Then no caller waits for its turn: such a caller would be among the
// operations.
func (g *registry) finish(v *volume, p *inProgress) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v.ops = slices.DeleteFunc(v.ops, func(other *inProgress) bool { return other == p })
	if len(v.ops) == 0 && v.saved.Load() == nil {
		delete(g.volumes, v.key)
	}
}

// show shows the record as it is now to those who only look, and makes it
// possible to find it by its directories.
func (g *registry) show(v *volume) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if old := v.saved.Load(); old != nil {
		for _, dir := range old.Dirs() {
			if g.byDir[dir] == v.key { // or the next volume of this name has it by now
				delete(g.byDir, dir)
			}
		}
	}
	if v.record.Idle() {
		v.noteDoubtLocked(nil)
		v.saved.Store(nil)
		v.record = &volstate.Record{Driver: v.key.Driver, Handle: v.key.Handle}
		return
	}
	saved := v.record.Clone()
	maps.DeleteFunc(v.last, func(what string, _ time.Time) bool { return filepath.IsAbs(what) && saved.Targets[what] == nil })
	v.noteDoubtLocked(saved)
	v.saved.Store(saved)
	if g.byDir == nil {
		g.byDir = map[string]csivol.Key{}
	}
	for _, dir := range saved.Dirs() {
		g.byDir[dir] = v.key
		g.forgetLostLocked(dir)
	}
}

// byDirectory returns the volume with a record that names a directory of the kubelet.
func (g *registry) byDirectory(dir string) (csivol.Key, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key, ok := g.byDir[dir]
	return key, ok
}

// find returns the volume that a directory of the kubelet belongs to, or will
// belong to when an operation has come so far.
func (g *registry) find(dir string) (csivol.Key, bool) {
	g.mu.Lock() // throughout: an operation may be recorded, and end, between two looks
	defer g.mu.Unlock()
	if key, ok := g.byDir[dir]; ok {
		return key, true
	}
	for key, v := range g.volumes {
		for _, p := range v.ops {
			if p.dir == dir {
				return key, true
			}
		}
	}
	return csivol.Key{}, false
}

func (g *registry) underWay() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range g.volumes {
		n += len(v.ops)
	}
	return n
}

func (g *registry) records() []*volstate.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	var records []*volstate.Record
	for _, v := range g.volumes {
		if r := v.saved.Load(); r != nil {
			records = append(records, r)
		}
	}
	return records
}

// busy reports whether an operation is under way on a volume.
func (g *registry) busy(key csivol.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.volumes[key]
	return v != nil && len(v.ops) > 0
}

// isDue reports whether it is time to do something again, and done notes that it
// was done.
func (g *registry) isDue(key csivol.Key, what string, every time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.volumes[key]
	return v != nil && time.Since(v.last[what]) >= every
}

func (g *registry) done(key csivol.Key, what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.volumes[key]
	if v == nil {
		return
	}
	if v.last == nil {
		v.last = map[string]time.Time{}
	}
	v.last[what] = time.Now()
}

// due is both.
func (g *registry) due(key csivol.Key, what string, every time.Duration) bool {
	if !g.isDue(key, what, every) {
		return false
	}
	g.done(key, what)
	return true
}

// uncertainSince returns since when a step on a volume is uncertain; zero: none is.
func (g *registry) uncertainSince(key csivol.Key) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.volumes[key]; v != nil {
		return v.uncertainSince
	}
	return time.Time{}
}

// noteMarker notes whether there is a marker at a device mount path that the
// reconciler has removed, or that is there again.
func (g *registry) noteMarker(path string, there bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if there {
		delete(g.unmarked, path)
		return
	}
	if g.unmarked == nil {
		g.unmarked = map[string]bool{}
	}
	g.unmarked[path] = true
}

// unmarkedAt reports whether the reconciler has removed the marker at a device mount
// path.
func (g *registry) unmarkedAt(path string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unmarked[path]
}

// lostDirs returns the directories of a volume without a record.
func (g *registry) lostDirs(pv persistentVolume) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.lost[pv])
}

// forgetLost is for what has been unmounted.
func (g *registry) forgetLost(dir string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetLostLocked(dir)
}

func (g *registry) forgetLostLocked(dir string) {
	for pv, dirs := range g.lost {
		target, _ := kubeletdir.TargetPath(dir)
		dirs = slices.DeleteFunc(dirs, func(d string) bool { // of whichever driver
			other, _ := kubeletdir.TargetPath(d)
			return other == target
		})
		if g.lost[pv] = dirs; len(dirs) == 0 {
			delete(g.lost, pv)
		}
	}
}
