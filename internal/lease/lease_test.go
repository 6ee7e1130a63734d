package lease

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/testenv"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func newDir(t *testing.T) Dir {
	t.Helper()
	return Dir(t.TempDir())
}

func (d Dir) mustTake(t *testing.T, l Lease) {
	t.Helper()
	if broken, err := d.Take(t.Context(), l); err != nil || len(broken) > 0 {
		t.Fatal(err, broken)
	}
}

// edit changes a lease on the disk.
func (d Dir) edit(t *testing.T, volume, node string, change func(*Lease)) {
	t.Helper()
	l, err := read(d.path(volume, node))
	if err != nil {
		t.Fatal(err)
	}
	change(&l)
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path(volume, node), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(d.path(volume, node), l.Renewed, l.Renewed); err != nil {
		t.Fatal(err)
	}
}

func TestTake(t *testing.T) {
	a := Lease{Disk: "image /x", Volume: "pv", Node: "a"}
	for name, tt := range map[string]struct {
		change   func(*Lease) // of what node a has
		b        Lease
		conflict bool
	}{
		"another node":           {nil, Lease{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"under another name":     {nil, Lease{Disk: "image /x", Volume: "pv-2", Node: "b"}, true},
		"reader beside a writer": {nil, Lease{Disk: "image /x", Volume: "pv", Node: "b", ReadOnly: true}, true},
		"writer beside a reader": {func(l *Lease) { l.ReadOnly = true }, Lease{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"readers":                {func(l *Lease) { l.ReadOnly = true }, Lease{Disk: "image /x", Volume: "pv", Node: "b", ReadOnly: true}, false},
		"another disk":           {nil, Lease{Disk: "image /y", Volume: "pv", Node: "b"}, false},
		"the same node":          {nil, Lease{Disk: "image /x", Volume: "pv-2", Node: "a"}, false},
		"expired":                {func(l *Lease) { l.Renewed = l.Renewed.Add(-Term - time.Second) }, Lease{Disk: "image /x", Volume: "pv", Node: "b"}, false},
		"almost expired":         {func(l *Lease) { l.Renewed = l.Renewed.Add(-Term + time.Minute) }, Lease{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"clock was set back":     {func(l *Lease) { l.Renewed = l.Renewed.Add(time.Minute) }, Lease{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"from the far future":    {func(l *Lease) { l.Renewed = l.Renewed.Add(24 * time.Hour) }, Lease{Disk: "image /x", Volume: "pv", Node: "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			d.mustTake(t, a)
			if tt.change != nil {
				d.edit(t, "pv", "a", tt.change)
			}
			_, err := d.Take(t.Context(), tt.b)
			conflict, ok := errors.AsType[*Conflict](err)
			if ok != tt.conflict || (err != nil && !ok) {
				t.Fatalf("error %v, want a conflict: %t", err, tt.conflict)
			}
			if ok {
				for _, part := range []string{"attached to node a", "volume pv", "node b", "detached there first"} {
					if !strings.Contains(conflict.Error(), part) {
						t.Errorf("%q is not in %q", part, conflict)
					}
				}
				// It frees what was in the way.
				if err := d.Drop(t.Context(), "pv", "a"); err != nil {
					t.Fatal(err)
				}
				d.mustTake(t, tt.b)
			}
			if files, err := filepath.Glob(filepath.Join(string(d), "[^.]*")); len(files) > 0 || err != nil {
				t.Errorf("files that the prober would see: %v", files)
			}
		})
	}
}

// isattached asks every minute, and so renews.
func TestTakeRenews(t *testing.T) {
	d := newDir(t)
	l := Lease{Disk: "image /x", Volume: "pv", Node: "a"}
	d.mustTake(t, l)
	old := time.Now().Add(-4 * time.Minute)
	d.edit(t, "pv", "a", func(l *Lease) { l.Renewed = old })
	d.mustTake(t, l)
	if got, err := read(d.path("pv", "a")); err != nil || !got.Renewed.After(old.Add(time.Minute)) {
		t.Errorf("renewed %v, %v", got.Renewed, err)
	}
	if !Held(d.path("pv", "a")) {
		t.Error("it does not hold")
	}
}

// Names of volumes and nodes may hold anything, and be like each other.
func TestOddNames(t *testing.T) {
	d := newDir(t)
	for i, l := range []Lease{
		{Volume: "a b", Node: "c"}, {Volume: "a", Node: "b c"}, {Volume: `a" "b`, Node: "c"}, {Volume: "../../x", Node: "/"}, {Volume: "\x00", Node: "\n"}, {Volume: strings.Repeat("x", 1000), Node: ""},
	} {
		l.Disk = string(rune('a' + i))
		d.mustTake(t, l)
		if got, err := read(d.path(l.Volume, l.Node)); err != nil || got.Volume != l.Volume || got.Node != l.Node {
			t.Errorf("%+v, %v, want %+v", got, err, l)
		}
		if filepath.Dir(d.path(l.Volume, l.Node)) != string(d) || !IsFile(d.path(l.Volume, l.Node)) {
			t.Errorf("path %s", d.path(l.Volume, l.Node))
		}
	}
	if files, err := filepath.Glob(filepath.Join(string(d), prefix+"*"+suffix)); len(files) != 6 || err != nil {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// A lease that cannot be read is reported and left out: it must not keep a
// volume from its pod.
func TestBroken(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "no JSON": "{", "another type": "[]", "garbage": "\x00\xff"} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			file := d.path("pv", "a")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			broken, err := d.Take(t.Context(), Lease{Disk: "x", Volume: "pv", Node: "b"})
			if err != nil || len(broken) != 1 || !strings.Contains(broken[0].Error(), file) {
				t.Errorf("broken %v, error %v", broken, err)
			}
			if err := d.Drop(t.Context(), "pv", "a"); err != nil {
				t.Error(err)
			}
			d.mustTake(t, Lease{Disk: "x", Volume: "pv", Node: "b"})
		})
	}
}

func TestDrop(t *testing.T) {
	d := newDir(t)
	for range 2 { // what is not known is gone
		if err := d.Drop(t.Context(), "pv", "a"); err != nil {
			t.Fatal(err)
		}
	}
	d.mustTake(t, Lease{Disk: "x", Volume: "pv", Node: "a"})
	d.mustTake(t, Lease{Disk: "y", Volume: "pv", Node: "b"})
	if err := os.WriteFile(d.temporary(), nil, 0o600); err != nil { // of a Take that was killed
		t.Fatal(err)
	}
	if err := d.Drop(t.Context(), "pv", "a"); err != nil {
		t.Fatal(err)
	}
	if Held(d.path("pv", "a")) || !Held(d.path("pv", "b")) {
		t.Error("another lease was dropped")
	}
	if _, err := os.Stat(d.temporary()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file stays: %v", err)
	}
	if err := Dir(filepath.Join(string(d), "none")).Drop(t.Context(), "pv", "a"); err != nil {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

// A directory that cannot be written to, as on a distroless control plane.
func TestReadOnlyDir(t *testing.T) {
	testenv.Need(t, "mount")
	path := t.TempDir()
	testenv.LeakCheck(t, path)
	if err := unix.Mount("test", path, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	}()
	d := Dir(path)
	_, err := d.Take(t.Context(), Lease{Disk: "x", Volume: "pv", Node: "a"})
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "cannot note who has the volume in "+path) {
		t.Errorf("error %v", err)
	}
	if err := d.Drop(t.Context(), "pv", "a"); err != nil {
		t.Errorf("no lease can be there, and Drop says %v", err)
	}
}

func TestTakeWaitsForLock(t *testing.T) {
	d := newDir(t)
	lock, err := d.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := d.Take(ctx, Lease{Disk: "x"}); !errors.Is(err, mounter.ErrBusy) {
		t.Errorf("error %v", err)
	}
	lock.Close()
	// Of many nodes at once one gets the disk.
	var taken atomic.Int32
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			_, err := d.Take(t.Context(), Lease{Disk: "x", Volume: "pv", Node: string(rune('a' + i))})
			switch _, conflict := errors.AsType[*Conflict](err); {
			case err == nil:
				taken.Add(1)
			case !conflict:
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if taken.Load() != 1 {
		t.Errorf("%d nodes have the disk", taken.Load())
	}
}

func TestHeld(t *testing.T) {
	d := newDir(t)
	d.mustTake(t, Lease{Disk: "x", Volume: "pv", Node: "a"})
	file := d.path("pv", "a")
	if !Held(file) {
		t.Error("a fresh lease does not hold")
	}
	old := time.Now().Add(-Term - time.Second)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if Held(file) || Held(file+"x") || Held(filepath.Join(string(d), prefix+"lock")) {
		t.Error("what is no lease, or an old one, holds")
	}
}
