package crash

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
	"github.com/flex2csi/flex2csi/test/trace"
)

// A lifeCase is one volume and its life.
type lifeCase struct {
	volume
	life []call
	// children is the callout that starts programs which write to the disk.
	children flex.Command
	// rare cases are only for the long run.
	rare bool
}

func image(fsType string, s state) volume {
	return volume{kind: kindImage, fsType: fsType, size: smallest(fsType), state: s, needs: []string{fsType}}
}

// with returns v changed.
func (v volume) with(change func(*volume)) volume {
	change(&v)
	return v
}

func cases() map[string]lifeCase {
	attach := func(v *volume) { v.attach = true }
	dirty := func(v *volume) { v.dirty = true }
	readOnly := func(v *volume) { v.readOnly = true }
	left := func(v *volume) { v.left = true }
	group := func(v *volume) { v.fsGroup = new(int64(4711)) }
	memory := volume{kind: kindMemory, size: 8 * testenv.MiB}
	source := volume{kind: kindSource, fsType: fuseType, readOnly: true, needs: []string{"fuse"}}
	device := image("ext4", kept)
	device.kind = kindDevice
	mount, expand := flex.CommandMount, flex.CommandExpandFS

	c := map[string]lifeCase{
		"memory/plain":    {volume: memory.with(group), life: plain()},
		"memory/grown":    {volume: memory, life: grown()},
		"memory/attached": {volume: memory.with(attach), life: attached(), rare: true},
		"path/plain":      {volume: volume{kind: kindPath, state: kept}.with(group), life: plain()},
		"path/readOnly":   {volume: volume{kind: kindPath, state: kept}.with(readOnly), life: plain()},
		"source/plain":    {volume: source, life: plain()},
		"device/attached": {volume: device.with(attach), life: attached()},
		"ext4/dirty":      {volume: image("ext4", copied).with(dirty), life: plain(), children: mount},
		"xfs/dirty":       {volume: image("xfs", copied).with(dirty), life: plain(), rare: true},
		"ext4/readOnly":   {volume: image("ext4", kept).with(readOnly), life: plain(), rare: true},
		"ext4/left":       {volume: image("ext4", copied).with(left), life: plain()},
	}
	c["ext4/attachedNew"] = lifeCase{volume: image("ext4", absent).with(attach), life: attached()}
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		reduced := fsType == "btrfs"
		c[fsType+"/new"] = lifeCase{volume: image(fsType, absent), life: plain(), children: mount}
		c[fsType+"/shared"] = lifeCase{volume: image(fsType, kept), life: shared(), rare: reduced}
		c[fsType+"/fsGroup"] = lifeCase{volume: image(fsType, copied).with(group), life: plain(), rare: fsType != "ext4"}
		c[fsType+"/attached"] = lifeCase{volume: image(fsType, kept).with(attach), life: attached(), rare: fsType != "xfs"}
		c[fsType+"/grown"] = lifeCase{volume: image(fsType, copied), life: grown(), children: expand}
		c[fsType+"/grownBefore"] = lifeCase{volume: image(fsType, copied), life: grownBefore(), children: expand, rare: reduced}
	}
	return c
}

// TestKill is the crash matrix.
func TestKill(t *testing.T) {
	testenv.Need(t, "root", "mount", "loop")
	var mu sync.Mutex
	var total counts
	t.Run("lives", func(t *testing.T) {
		for name, c := range cases() {
			if c.rare && !all() {
				continue
			}
			t.Run(name, func(t *testing.T) {
				testenv.Need(t, c.needs...)
				t.Parallel()
				count := lead(t, c)
				mu.Lock()
				defer mu.Unlock()
				total.add(count)
			})
		}
	})
	t.Logf("all: %v", total)
}

// leastPoints is fewer than any callout has.
const leastPoints = 5

// lead kills each call of a life in turn.
func lead(t *testing.T, c lifeCase) (count counts) {
	m := &matrix{world: newWorld(t, &c.volume), life: c.life}
	t.Cleanup(func() { m.device = ""; m.scrub() })
	if err := m.found(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		m.count.calls = m.calls
		count = m.count
		t.Logf("%v", count)
	}()
	for i, victim := range c.life {
		r := m.baseline(t, i, &trace.Tracer{Name: driverProgram})
		points := pointsOf(r.Steps, victim)
		if len(points) < leastPoints {
			t.Fatalf("%s has %d kill points: the tracer does not see what it does", victim, len(points))
		}
		m.kill(t, i, points)
		switch {
		case c.kind == kindSource:
			// A mount program may have children that cannot be ended.
			m.kill(t, i, timePoints(r.Took, 20, false))
		case victim.command == c.children:
			r = m.baseline(t, i, &trace.Tracer{Name: driverProgram, Follow: true})
			m.kill(t, i, childPoints(r.Steps, victim))
			m.kill(t, i, timePoints(r.Took, 6, true))
		}
	}
	return m.count
}

// baseline makes a victim undisturbed, under trace.
func (m *matrix) baseline(t *testing.T, i int, tr *trace.Tracer) *trace.Result {
	t.Helper()
	if err := m.reach(i); err != nil {
		t.Fatal(err)
	}
	r, err := m.trace(m.life[i], tr)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ranThrough(i, again, r); err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	if os.Getenv("CRASH_STEPS") != "" {
		for _, s := range r.Steps {
			t.Logf("%v %v", s.Class, s)
		}
	}
	return r
}

// found makes what later lives begin with: an image with files in it.
func (m *matrix) found() error {
	if m.volume.state == absent || !m.volume.isDisk() {
		return nil
	}
	volume := *m.volume
	*m.volume = image(volume.fsType, absent)
	err := m.foundImage(volume.dirty)
	*m.volume = volume
	if err != nil {
		return fmt.Errorf("the first life: %w", err)
	}
	switch {
	case volume.kind == kindDevice:
		m.device, err = attachLoop(m.image())
	case volume.state == copied && !volume.dirty:
		err = copyImage(m.image(), m.template())
	}
	return err
}

// foundImage leads the first life.
func (m *matrix) foundImage(dirty bool) error {
	if err := m.begin(); err != nil {
		return err
	}
	if err := m.undisturbed(plain()[0]); err != nil {
		return err
	}
	dir := m.target(plain()[0])
	if err := m.fill(dir); err != nil {
		return err
	}
	if dirty {
		if err := syncDir(dir); err != nil {
			return err
		}
		if err := copyImage(m.image(), m.template()); err != nil {
			return err
		}
	}
	m.known = maps.Clone(m.files)
	if err := m.undisturbed(plain()[1]); err != nil {
		return err
	}
	return m.settled(false)
}

// syncDir writes a filesystem out, as far as it must be to survive: the rest
// is in its journal.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
