package volstate_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

func record(handle string) *volstate.Record {
	return &volstate.Record{
		FlexDriver: "example.com/disk", Driver: "csi.example.com", Handle: handle, Name: "pv",
		Stage: volstate.Doing, StagingPath: "/k/globalmount",
		Targets: map[string]*volstate.Target{"/k/pods/p": {TargetPath: "/k/private", Publish: volstate.Done}},
	}
}

func open(t *testing.T) (*volstate.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	s, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func TestStore(t *testing.T) {
	s, _ := open(t)
	// Handles are whatever a driver likes.
	for _, handle := range []string{"a", "../../etc/passwd", "a/b\x00c", strings.Repeat("x", 4096), "ü \n"} {
		want := record(handle)
		if err := s.Put(want); err != nil {
			t.Fatal(err)
		}
		got, broken, err := s.Load()
		if err != nil || len(broken) > 0 || len(got) != 1 {
			t.Fatalf("%q: %d records, %v, %v", handle, len(got), broken, err)
		}
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("%q: %s", handle, diff)
		}
		if err := s.Delete(want.Key()); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(want.Key()); err != nil {
			t.Errorf("deleting what is gone: %v", err)
		}
	}
}

// TestBrokenFiles: if a crash or an operator left a broken file, the other records
// are read, and the file is kept for the operator.
func TestBrokenFiles(t *testing.T) {
	for name, content := range map[string]string{
		"empty":           "",
		"torn":            `{"version":1,"csiDriver":"csi.exam`,
		"garbage":         "\x00\x01\x02",
		"another version": `{"version":99,"csiDriver":"a","volumeHandle":"b"}`,
		"of another":      `{"version":1,"csiDriver":"a","volumeHandle":"b"}`,
		"no volume":       `{"version":1}`,
		"null target":     `{"version":1,"csiDriver":"csi.example.com","volumeHandle":"broken","targets":{"/x":null}}`,
		"two":             `{"version":1}{"version":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			bad := record("broken")
			if err := s.Put(bad); err != nil {
				t.Fatal(err)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			if err := os.WriteFile(files[0], []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := s.Put(record("good")); err != nil {
				t.Fatal(err)
			}
			got, broken, err := s.Load()
			if err != nil || len(got) != 1 || got[0].Handle != "good" || len(broken) != 1 {
				t.Fatalf("%d records, broken %v, %v", len(got), broken, err)
			}
			if _, broken, _ := s.Load(); len(broken) != 0 {
				t.Errorf("reported again: %v", broken)
			}
			if aside, _ := filepath.Glob(filepath.Join(dir, "*.broken")); len(aside) != 1 {
				t.Errorf("put aside: %v", aside)
			}
		})
	}
}

// TestTheVersionBeforeStays while it is the only one: a process may be killed in
// the middle of the write that is to replace it.
func TestTheVersionBeforeStays(t *testing.T) {
	s, dir := open(t)
	for range 2 {
		if err := s.Put(record("h")); err != nil {
			t.Fatal(err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(record("h")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(files[0]); err != nil { // as if it had not come so far
		t.Fatal(err)
	}
	if got, _, err := s.Load(); err != nil || len(got) != 1 || !got[0].Recovered {
		t.Errorf("%+v, %v, want the version before", got, err)
	}
}

func TestOpenRefusesWhatOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	for _, mode := range []fs.FileMode{0o777, 0o777 | fs.ModeSticky} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := volstate.Open(dir); err == nil {
			t.Errorf("opened a directory of mode %v", mode)
		}
	}
}

func FuzzLoad(f *testing.F) {
	good, _ := json.Marshal(record("h"))
	f.Add(good)
	f.Add([]byte(`{"version":1,"csiDriver":"csi.example.com","volumeHandle":"h","targets":{"x":{}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		s, dir := open(t)
		if err := s.Put(record("h")); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		if err := os.WriteFile(files[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, broken, err := s.Load()
		if err != nil || len(got)+len(broken) != 1 {
			t.Fatalf("%d records, broken %v, %v", len(got), broken, err)
		}
		for _, r := range got {
			if r.Key() != (csivol.Key{Driver: "csi.example.com", Handle: "h"}) {
				t.Errorf("the file of one volume was taken for %s", r.Key())
			}
		}
	})
}

// TestVersionBefore: there always is one, whatever a process left that was
// killed while it wrote, or that could not write.
func TestVersionBefore(t *testing.T) {
	dir := t.TempDir()
	store, err := volstate.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	r := &volstate.Record{Driver: "d", Handle: "h"}
	put := func() string {
		t.Helper()
		if err := store.Put(r); err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "state/d-*.json"))
		if len(files) != 1 {
			t.Fatal(files)
		}
		return files[0]
	}
	file := put()
	temporary := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+"~")
	for _, leave := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(temporary, nil, 0o600) },
		func() error { return errors.Join(os.Remove(file+"~"), os.Link(file, file+"~")) },
	} {
		if err := leave(); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		put()
		if kept, err := os.ReadFile(file + "~"); err != nil || string(kept) != string(before) {
			t.Errorf("kept %q, %v; want %q", kept, err, before)
		}
		if _, err := os.Stat(temporary); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", temporary, err)
		}
	}
}

// TestTemporaryFiles: what a write that was cut short has left is removed, but not
// what another process is about to rename.
func TestTemporaryFiles(t *testing.T) {
	s, dir := open(t)
	if err := s.Put(record("a")); err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	old, young, mine := filepath.Join(dir, ".cordon0"), filepath.Join(dir, ".cordon1"), filepath.Join(dir, "."+filepath.Base(records[0])+"17")
	for _, path := range []string{old, young, mine} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	if _, broken, err := s.Load(); err != nil || len(broken) > 0 {
		t.Fatal(broken, err)
	}
	for _, path := range []string{old, mine} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("%s is gone: %v", young, err)
	}
}

// TestErrorTexts (N10): drivers answer with pages. Records grew until they were larger
// than what Load reads, which put them aside, and the volume was unknown.
func TestErrorTexts(t *testing.T) {
	s, _ := open(t)
	r := record("h")
	long := strings.Repeat("ü no such disk ", 1<<17)
	r.LastError, r.StageDead = long, long
	for dir := range r.Targets {
		r.Targets[dir].LastError, r.Targets[dir].Dead = long, long
	}
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	got, broken, err := s.Load()
	if err != nil || len(broken) > 0 || len(got) != 1 {
		t.Fatalf("%d records, %v, %v", len(got), broken, err)
	}
	if n := len(got[0].LastError); n > 1100 || !strings.HasSuffix(got[0].LastError, "…") || got[0].StageDead == "" {
		t.Errorf("the text has %d bytes", n)
	}
	if r.LastError != long {
		t.Error("the caller's record was changed")
	}
}

// TestTooLarge (N10): what could not be read again is not written, and what is on the
// disk stays.
func TestTooLarge(t *testing.T) {
	s, _ := open(t)
	r := record("h")
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	r.PublishContext = map[string]string{"x": strings.Repeat("x", 5<<20)}
	if err := s.Put(r); err == nil || !strings.Contains(err.Error(), "shorten") {
		t.Errorf("a record of 5 MiB: %v", err)
	}
	if got, broken, err := s.Load(); err != nil || len(broken) > 0 || len(got) != 1 || got[0].PublishContext != nil {
		t.Errorf("%+v, %v, %v", got, broken, err)
	}
}

// TestUnreadableFile (N12): a file that cannot be read was renamed as if it was broken,
// and the volume forgotten. Its content may be valid when the disk answers again.
func TestUnreadableFile(t *testing.T) {
	for _, name := range []string{"record", "version before", "directory"} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			for range 2 {
				if err := s.Put(record("h")); err != nil {
					t.Fatal(err)
				}
			}
			files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
			path := files[0]
			if name == "version before" {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				path += "~"
			}
			locked, mode := path, fs.FileMode(0)
			if name == "directory" {
				locked, mode = dir, 0o444 // it can be listed
			}
			give := unreadable(t, dir, locked, mode)
			if got, broken, err := s.Load(); err == nil || !strings.Contains(err.Error(), path) || len(got)+len(broken) > 0 {
				t.Errorf("%d records, broken %v, %v", len(got), broken, err)
			}
			give()
			if got, broken, err := s.Load(); err != nil || len(got) != 1 || len(broken) > 0 {
				t.Errorf("later: %d records, broken %v, %v", len(got), broken, err)
			}
		})
	}
}

// unreadable keeps this thread from reading a file, until the caller gives it back. Root
// gets another ID for files, and no capability with it (setfsuid(2)).
func unreadable(t *testing.T, dir, path string, mode fs.FileMode) (give func()) {
	t.Helper()
	runtime.LockOSThread()
	id := unix.Geteuid()
	top := filepath.Dir(dir)
	if err := errors.Join(os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), os.Chmod(dir, 0o755), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	if id == 0 {
		_ = unix.Setfsuid(65534)
	}
	return func() {
		_ = unix.Setfsuid(id)
		runtime.UnlockOSThread()
		if err := os.Chmod(path, 0o700); err != nil {
			t.Error(err)
		}
	}
}
