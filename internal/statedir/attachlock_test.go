//go:build linux

package statedir

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

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func newDir(t *testing.T) AttachLocks {
	t.Helper()
	return AttachLocks(t.TempDir())
}

func (d AttachLocks) mustAcquire(t *testing.T, l AttachLock) {
	t.Helper()
	if broken, err := d.Acquire(t.Context(), l); err != nil || len(broken) > 0 {
		t.Fatal(err, broken)
	}
}

// edit changes a lock on the disk.
func (d AttachLocks) edit(t *testing.T, volume, node string, change func(*AttachLock)) {
	t.Helper()
	l, err := readAttachLock(d.path(volume, node))
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

func TestAcquire(t *testing.T) {
	a := AttachLock{Disk: "image /x", Volume: "pv", Node: "a"}
	for name, tt := range map[string]struct {
		change   func(*AttachLock) // of what node a has
		b        AttachLock
		conflict bool
	}{
		"another node":         {nil, AttachLock{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"under another name":   {nil, AttachLock{Disk: "image /x", Volume: "pv-2", Node: "b"}, true},
		"reader with a writer": {nil, AttachLock{Disk: "image /x", Volume: "pv", Node: "b", ReadOnly: true}, true},
		"writer with a reader": {func(l *AttachLock) { l.ReadOnly = true }, AttachLock{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"readers":              {func(l *AttachLock) { l.ReadOnly = true }, AttachLock{Disk: "image /x", Volume: "pv", Node: "b", ReadOnly: true}, false},
		"another disk":         {nil, AttachLock{Disk: "image /y", Volume: "pv", Node: "b"}, false},
		"the same node":        {nil, AttachLock{Disk: "image /x", Volume: "pv-2", Node: "a"}, false},
		"expired":              {func(l *AttachLock) { l.Renewed = l.Renewed.Add(-term - time.Second) }, AttachLock{Disk: "image /x", Volume: "pv", Node: "b"}, false},
		"almost expired":       {func(l *AttachLock) { l.Renewed = l.Renewed.Add(-term + time.Minute) }, AttachLock{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"clock was set back":   {func(l *AttachLock) { l.Renewed = l.Renewed.Add(time.Minute) }, AttachLock{Disk: "image /x", Volume: "pv", Node: "b"}, true},
		"from the far future":  {func(l *AttachLock) { l.Renewed = l.Renewed.Add(24 * time.Hour) }, AttachLock{Disk: "image /x", Volume: "pv", Node: "b"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			d.mustAcquire(t, a)
			if tt.change != nil {
				d.edit(t, "pv", "a", tt.change)
			}
			_, err := d.Acquire(t.Context(), tt.b)
			conflict, ok := errors.AsType[*AttachConflict](err)
			if ok != tt.conflict || (err != nil && !ok) {
				t.Fatalf("error %v, want a conflict: %t", err, tt.conflict)
			}
			if ok {
				for _, part := range []string{"attached to node a", "volume pv", "node b", "detach it there first"} {
					if !strings.Contains(conflict.Error(), part) {
						t.Errorf("%q is not in %q", part, conflict)
					}
				}
				// Release removes the conflict.
				if err := d.Release(t.Context(), "pv", "a"); err != nil {
					t.Fatal(err)
				}
				d.mustAcquire(t, tt.b)
			}
			if files, err := filepath.Glob(filepath.Join(string(d), "[^.]*")); len(files) > 0 || err != nil {
				t.Errorf("files that the prober would see: %v", files)
			}
		})
	}
}

// TestAcquireRenews: isattached, which is called every minute, renews the lock.
func TestAcquireRenews(t *testing.T) {
	d := newDir(t)
	l := AttachLock{Disk: "image /x", Volume: "pv", Node: "a"}
	d.mustAcquire(t, l)
	old := time.Now().Add(-4 * time.Minute)
	d.edit(t, "pv", "a", func(l *AttachLock) { l.Renewed = old })
	d.mustAcquire(t, l)
	if got, err := readAttachLock(d.path("pv", "a")); err != nil || !got.Renewed.After(old.Add(time.Minute)) {
		t.Errorf("renewed %v, %v", got.Renewed, err)
	}
	if !AttachLockHeld(d.path("pv", "a")) {
		t.Error("the lock is not held")
	}
}

// TestOddNames: names of volumes and nodes may contain any character, and resemble
// each other.
func TestOddNames(t *testing.T) {
	d := newDir(t)
	for i, l := range []AttachLock{
		{Volume: "a b", Node: "c"}, {Volume: "a", Node: "b c"}, {Volume: `a" "b`, Node: "c"}, {Volume: "../../x", Node: "/"}, {Volume: "\x00", Node: "\n"}, {Volume: strings.Repeat("x", 1000), Node: ""},
	} {
		l.Disk = string(rune('a' + i))
		d.mustAcquire(t, l)
		if got, err := readAttachLock(d.path(l.Volume, l.Node)); err != nil || got.Volume != l.Volume || got.Node != l.Node {
			t.Errorf("%+v, %v, want %+v", got, err, l)
		}
		if filepath.Dir(d.path(l.Volume, l.Node)) != string(d) || !IsAttachLock(d.path(l.Volume, l.Node)) {
			t.Errorf("path %s", d.path(l.Volume, l.Node))
		}
	}
	if files, err := filepath.Glob(filepath.Join(string(d), prefix+"*"+attachLockSuffix)); len(files) != 6 || err != nil {
		t.Errorf("%d files, %v", len(files), err)
	}
}

// TestBroken: a lock that cannot be read is reported and ignored. It must not keep a
// volume from its pod.
func TestBroken(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "no JSON": "{", "another type": "[]", "garbage": "\x00\xff"} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			file := d.path("pv", "a")
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			broken, err := d.Acquire(t.Context(), AttachLock{Disk: "x", Volume: "pv", Node: "b"})
			if err != nil || len(broken) != 1 || !strings.Contains(broken[0].Error(), file) {
				t.Errorf("broken %v, error %v", broken, err)
			}
			if err := d.Release(t.Context(), "pv", "a"); err != nil {
				t.Error(err)
			}
			d.mustAcquire(t, AttachLock{Disk: "x", Volume: "pv", Node: "b"})
		})
	}
}

func TestRelease(t *testing.T) {
	d := newDir(t)
	for range 2 { // it is no error if there is none
		if err := d.Release(t.Context(), "pv", "a"); err != nil {
			t.Fatal(err)
		}
	}
	d.mustAcquire(t, AttachLock{Disk: "x", Volume: "pv", Node: "a"})
	d.mustAcquire(t, AttachLock{Disk: "y", Volume: "pv", Node: "b"})
	if err := os.WriteFile(d.temporary(), nil, 0o600); err != nil { // of an Acquire that was killed
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), "pv", "a"); err != nil {
		t.Fatal(err)
	}
	if AttachLockHeld(d.path("pv", "a")) || !AttachLockHeld(d.path("pv", "b")) {
		t.Error("another lock was released")
	}
	if _, err := os.Stat(d.temporary()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a temporary file stays: %v", err)
	}
	if err := AttachLocks(filepath.Join(string(d), "none")).Release(t.Context(), "pv", "a"); err != nil {
		t.Errorf("of a directory that does not exist: %v", err)
	}
}

// TestReadOnlyDir: the directory is read-only, as on a distroless control plane.
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
	d := AttachLocks(path)
	_, err := d.Acquire(t.Context(), AttachLock{Disk: "x", Volume: "pv", Node: "a"})
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "attachment locks in "+path) {
		t.Errorf("error %v", err)
	}
	if err := d.Release(t.Context(), "pv", "a"); err != nil {
		t.Errorf("no lock can exist there, but Release says %v", err)
	}
}

func TestAcquireWaitsForLock(t *testing.T) {
	d := newDir(t)
	lock, err := d.exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(ctx, AttachLock{Disk: "x"}); !errors.Is(err, mounter.ErrBusy) {
		t.Errorf("error %v", err)
	}
	lock.Close()
	// Of many nodes at once one gets the disk.
	var taken atomic.Int32
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			_, err := d.Acquire(t.Context(), AttachLock{Disk: "x", Volume: "pv", Node: string(rune('a' + i))})
			switch _, conflict := errors.AsType[*AttachConflict](err); {
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
	d.mustAcquire(t, AttachLock{Disk: "x", Volume: "pv", Node: "a"})
	file := d.path("pv", "a")
	if !AttachLockHeld(file) {
		t.Error("a fresh lock is not held")
	}
	old := time.Now().Add(-term - time.Second)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if AttachLockHeld(file) || AttachLockHeld(file+"x") || AttachLockHeld(filepath.Join(string(d), prefix+"lock")) {
		t.Error("an expired lock or another file is held")
	}
}
