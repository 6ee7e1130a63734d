package volstate_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// fileOf puts a record and returns its file.
func fileOf(t *testing.T, s *volstate.Store, dir string, r *volstate.Record) string {
	t.Helper()
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0]
}

// occupy makes a directory that is not empty: nothing removes it, links it or takes its place.
func occupy(t *testing.T, path string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v; want an error with %q", err, text)
	}
}

// TestPutFails: each step of a write that fails is told, so that the caller knows that the
// disk may have the old record.
func TestPutFails(t *testing.T) {
	temporary := func(file string) string {
		return filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+"~")
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, file string)
		want  string
	}{
		"what an earlier write left":   {func(t *testing.T, file string) { occupy(t, temporary(file)) }, "keep the version before of the record of"},
		"the link to the record":       {func(t *testing.T, file string) { occupy(t, file) }, "keep the version before of the record of"},
		"its rename":                   {func(t *testing.T, file string) { occupy(t, file+"~") }, "keep the version before of the record of"},
		"the directory is gone":        {func(t *testing.T, file string) { mustRemove(t, filepath.Dir(file)) }, "write the record of"},
		"the directory became a file":  {spoilDirectory, "keep the version before of the record of"},
		"an empty one is in the place": {func(t *testing.T, file string) { mustRemove(t, file); mustMkdir(t, file) }, "keep the version before of the record of"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			c.spoil(t, fileOf(t, s, dir, record("h")))
			wantError(t, s.Put(record("h")), c.want)
		})
	}
}

func spoilDirectory(t *testing.T, file string) {
	t.Helper()
	mustRemove(t, filepath.Dir(file))
	mustWrite(t, filepath.Dir(file), "")
}

func mustRemove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func mustMkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteFails: a record that is still there, or may come back after a power failure, is no
// deleted one.
func TestDeleteFails(t *testing.T) {
	for _, suffix := range []string{"", "~"} {
		s, dir := open(t)
		occupy(t, fileOf(t, s, dir, record("h"))+suffix)
		wantError(t, s.Delete(record("h").Key()), "remove the record of")
	}
	s, dir := open(t)
	mustRemove(t, dir)
	wantError(t, s.Delete(record("h").Key()), "no such file or directory") // it cannot be made durable
}

// TestOpenFails, and opens what other users may read.
func TestOpenFails(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "file"), "")
	_, err := volstate.Open(filepath.Join(dir, "file"))
	wantError(t, err, "make the state directory: ")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := volstate.Open(dir); err != nil {
		t.Error(err)
	}
}

// TestLocked: it says who has the records, and does not keep them.
func TestLocked(t *testing.T) {
	s, dir := open(t)
	other, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if held, err := other.Locked(); held || err != nil {
			t.Errorf("records that no process uses: %t, %v", held, err)
		}
	}
	if err := s.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err := other.Locked(); !held || err != nil {
		t.Errorf("records that are used: %t, %v", held, err)
	}
	if err := s.Unlock(); err != nil {
		t.Fatal(err)
	}
	occupy(t, filepath.Join(dir, "lock"))
	held, err := other.Locked()
	wantError(t, err, "lock the state directory "+dir)
	if held {
		t.Error("records that cannot be locked are in use")
	}
}

// TestFileName: releases must find each other's records.
func TestFileName(t *testing.T) {
	s, dir := open(t)
	r := record("h")
	r.Driver = "..09.az-AZ/:@[`{_ü"
	if got, want := filepath.Base(fileOf(t, s, dir, r)), "09.az-AZ________-79594f0557788305e8bb64de.json"; got != want {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestNearlyTooLarge: the largest record that can be written can be read, and one byte more
// is refused.
func TestNearlyTooLarge(t *testing.T) {
	s, dir := open(t)
	r := record("h")
	r.PublishContext = map[string]string{"x": ""}
	file, size := fileOf(t, s, dir, r), 0
	// The text of the time of the change has one length in nine of ten tries.
	for tries := 0; size != 4<<20; tries++ {
		st, err := os.Stat(file)
		if err != nil || tries == 50 {
			t.Fatalf("no record of 4 MiB was written: %d bytes, %v", size, err)
		}
		size = int(st.Size() - 1) // without the end of the line
		r.PublishContext["x"] += strings.Repeat("x", 4<<20-size)
		for err = s.Put(r); err != nil; err = s.Put(r) {
			wantError(t, err, "more than 4194304")
			r.PublishContext["x"] = r.PublishContext["x"][1:]
		}
	}
	if got, broken, err := s.Load(); err != nil || len(got) != 1 || len(broken) > 0 {
		t.Errorf("%d records, %v, %v", len(got), broken, err)
	}
}

// TestNotARecord: what is no record, or not one for this release, is put aside, each for its
// own reason.
func TestNotARecord(t *testing.T) {
	for name, c := range map[string]struct {
		put     func(*volstate.Record)
		replace [2]string
		want    string
	}{
		"of a later release": {replace: [2]string{`"version": 1`, `"version": 2`}, want: "its version is 2"},
		"without a version":  {replace: [2]string{`"version": 1`, `"version": 0`}, want: "its version is 0"},
		"without a driver":   {put: func(r *volstate.Record) { r.Driver = "" }, want: "it names no volume"},
		"without a handle":   {put: func(r *volstate.Record) { r.Handle = "" }, want: "it names no volume"},
		"a relative target":  {replace: [2]string{`"/k/pods/p"`, `"k/pods/p"`}, want: `its target "k/pods/p" is none`},
		"not even JSON":      {replace: [2]string{"{", "["}, want: "invalid character"},
		"more than one":      {replace: [2]string{"\n}\n", "\n}\n{}"}, want: "there is more than one record"},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			r := record("h")
			if c.put != nil {
				c.put(r)
			}
			file := fileOf(t, s, dir, r)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			mustWrite(t, file, strings.Replace(string(text), c.replace[0], c.replace[1], 1))
			wantBroken(t, s, file+" was broken ("+c.want)
		})
	}
}

// wantBroken loads no record, and one broken file.
func wantBroken(t *testing.T, s *volstate.Store, text string) {
	t.Helper()
	got, broken, err := s.Load()
	if err != nil || len(got) > 0 || len(broken) != 1 {
		t.Fatalf("%d records, %v, %v", len(got), broken, err)
	}
	wantError(t, broken[0], text)
}

// TestNoRegularFile: a link, or a file that memory is not enough for, is no record.
func TestNoRegularFile(t *testing.T) {
	s, dir := open(t)
	file := fileOf(t, s, dir, record("h"))
	if err := errors.Join(os.Rename(file, filepath.Join(dir, "away")), os.Symlink("away", file)); err != nil {
		t.Fatal(err)
	}
	wantBroken(t, s, "it is no regular file")

	file = fileOf(t, s, dir, record("h"))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	most := string(text) + strings.Repeat(" ", 64<<20-len(text))
	mustWrite(t, file, most)
	if got, broken, err := s.Load(); err != nil || len(got) != 1 || len(broken) > 0 {
		t.Errorf("a file of 64 MiB: %d records, %v, %v", len(got), broken, err)
	}
	mustWrite(t, file, most+" ")
	wantBroken(t, s, "larger than 67108864 bytes")
}

// TestCannotPutAside: a broken file with a name that cannot become longer stays, and is told.
func TestCannotPutAside(t *testing.T) {
	s, dir := open(t)
	long := filepath.Join(dir, strings.Repeat("x", 240)+".json")
	mustWrite(t, long, "{}")
	wantBroken(t, s, long+" is broken (its version is 0, and this program knows up to 1) and cannot be put aside: ")
	if _, err := os.Stat(long); err != nil {
		t.Error(err)
	}
}

// TestForeignDirectories: a directory is not removed, whatever its name.
func TestForeignDirectories(t *testing.T) {
	s, dir := open(t)
	mustMkdir(t, filepath.Join(dir, ".hidden"))
	if _, broken, err := s.Load(); err != nil || len(broken) > 0 {
		t.Error(broken, err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".hidden")); err != nil {
		t.Error(err)
	}
}

// TestNoDirectory: no records is another answer than none that can be read.
func TestNoDirectory(t *testing.T) {
	s, dir := open(t)
	mustRemove(t, dir)
	_, _, err := s.Load()
	wantError(t, err, "read the state directory: ")
}

// TestBothVersionsBroken: there is no record then, and Peek returns none either.
func TestBothVersionsBroken(t *testing.T) {
	s, dir := open(t)
	file := fileOf(t, s, dir, record("h"))
	mustWrite(t, file, "{")
	mustWrite(t, file+"~", "{")
	if got, broken, err := volstate.Peek(dir); err != nil || len(got) > 0 || len(broken) != 1 {
		t.Errorf("Peek: %d records, %v, %v", len(got), broken, err)
	}
	wantBroken(t, s, "was broken")
}

// TestTimesInAFile are UTC, whatever zone the daemon runs in.
func TestTimesInAFile(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("", 3600)
	t.Cleanup(func() { time.Local = local })
	s, dir := open(t)
	r := record("h")
	r.Targets["/k/pods/p"].Since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	text, err := os.ReadFile(fileOf(t, s, dir, r))
	if err != nil || !strings.Contains(string(text), `"since": "2026-01-02T02:04:05Z"`) || strings.Count(string(text), `Z"`) != 2 {
		t.Errorf("%s, %v", text, err)
	}
}

// TestClippedText: a text of exactly the bound stays as it is.
func TestClippedText(t *testing.T) {
	s, _ := open(t)
	r := record("h")
	r.LastError = strings.Repeat("x", 1024)
	if err := s.Put(r); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Load(); err != nil || len(got) != 1 || got[0].LastError != r.LastError {
		t.Errorf("%v, %v", got, err)
	}
}

// TestFacts of a record, each field by itself.
func TestFacts(t *testing.T) {
	targets := func(t volstate.Target) *volstate.Record {
		return &volstate.Record{Targets: map[string]*volstate.Target{"/p": &t}}
	}
	for name, c := range map[string]struct {
		r               *volstate.Record
		idle, uncertain bool
		dead, dirs      int
	}{
		"nothing":        {r: &volstate.Record{}, idle: true},
		"staged":         {r: &volstate.Record{Stage: volstate.Done}},
		"attached":       {r: &volstate.Record{Attach: volstate.Done}},
		"a device":       {r: &volstate.Record{Device: "/d"}, dirs: 1},
		"a target":       {r: targets(volstate.Target{Publish: volstate.Done}), dirs: 1},
		"publishing":     {r: targets(volstate.Target{Publish: volstate.Doing}), dirs: 1, uncertain: true},
		"dead target":    {r: targets(volstate.Target{Dead: "x"}), dirs: 1, dead: 1},
		"dead stage":     {r: &volstate.Record{Stage: volstate.Done, StageDead: "x"}, dead: 1},
		"attaching":      {r: &volstate.Record{Attach: volstate.Doing}, uncertain: true},
		"unstaging":      {r: &volstate.Record{Stage: volstate.Undoing}, uncertain: true},
		"expanding":      {r: &volstate.Record{Device: "/d", Expand: volstate.Doing}, dirs: 1, uncertain: true},
		"has been grown": {r: &volstate.Record{Device: "/d", Expand: volstate.Done}, dirs: 1},
	} {
		if c.r.Idle() != c.idle || c.r.Uncertain() != c.uncertain || c.r.DeadMounts() != c.dead || len(c.r.Dirs()) != c.dirs {
			t.Errorf("%s: idle %t, uncertain %t, %d dead, directories %q", name, c.r.Idle(), c.r.Uncertain(), c.r.DeadMounts(), c.r.Dirs())
		}
	}
	a, b := record("h"), record("h").Clone()
	b.Targets["/k/pods/p"].Publish = volstate.Undoing
	if b.Clone().Targets["/k/pods/q"] = nil; a.Targets["/k/pods/p"].Publish != volstate.Done || len(b.Targets) != 1 {
		t.Error("a copy shares its targets")
	}
	b = record("h")
	b.Changed, b.Version, b.BootID = time.Now(), 1, "another"
	if !a.Same(b) {
		t.Error("records with other times are not the same")
	}
	if b.Stage = volstate.Done; a.Same(b) {
		t.Error("a staged one is the same")
	}
}

// TestMaskedAnywhere: a value that is masked in the context or in the flags has to be told again,
// and one that is not stays.
func TestMaskedAnywhere(t *testing.T) {
	masked := record("h")
	masked.Context = map[string]string{"password": "secret"}
	s, _ := open(t)
	flags := record("f")
	flags.MountFlags = []string{"password=secret"}
	for _, r := range []*volstate.Record{masked, flags} {
		if err := s.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	got, _, err := s.Load()
	if err != nil || len(got) != 2 || !got[0].Incomplete() || !got[1].Incomplete() || record("x").Incomplete() {
		t.Errorf("%+v, %v", got, err)
	}
	masked.Complete(map[string]string{"password": "another"}, nil)
	if masked.Context["password"] != "secret" {
		t.Error("a complete record took another secret")
	}
}
