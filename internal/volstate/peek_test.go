package volstate_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestPeek: looking finds what Load would, and leaves everything as it is.
func TestPeek(t *testing.T) {
	dir := t.TempDir()
	store, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(&volstate.Record{Driver: "d", Handle: "h", Stage: volstate.Done}); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"torn.json": `{"ver`, ".temporary.json": "{}", "old.json.1.broken": "x", "note": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := names(t, dir)
	records, broken, err := volstate.Peek(dir)
	if err != nil || len(records) != 1 || records[0].Handle != "h" || len(broken) != 1 {
		t.Errorf("got %d records, broken %v, %v", len(records), broken, err)
	}
	for name, want := range map[string]bool{"old.json.1.broken": true, "torn.json": false, "x.json~": false} {
		if volstate.IsAside(name) != want {
			t.Errorf("%s: put aside is %t", name, !want)
		}
	}
	if diff := cmp.Diff(before, names(t, dir)); diff != "" {
		t.Errorf("looking changed the directory: %s", diff)
	}
	// After a fault of the disk there is the version before.
	if err := store.Put(&volstate.Record{Driver: "d", Handle: "h"}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "d-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	mustWrite(t, files[0], "")
	records, broken, err = volstate.Peek(dir)
	if err != nil || len(records) != 1 || !records[0].Recovered || records[0].Stage != volstate.Done || len(broken) != 2 {
		t.Errorf("with the version before: %+v, broken %v, %v", records, broken, err)
	}
	if _, _, err := volstate.Peek(filepath.Join(dir, "none")); err == nil {
		t.Error("a directory that is not there is no error")
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
