package statedir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

func pending(dir string) statedir.PendingUnmount {
	return statedir.PendingUnmount{Driver: "a/b", Command: flex.CommandUnmount, Dir: dir, Time: time.Now().UTC()}
}

func TestLife(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if found, broken := statedir.ListPendingUnmounts(dir); len(found)+len(broken) > 0 {
		t.Errorf("in a directory that does not exist: %v, %v", found, broken)
	}
	one, two := pending("/k/pods/1/volumes/a~b/c"), pending("/k/pods/2/volumes/a~b/c")
	for _, s := range []statedir.PendingUnmount{one, two, one} {
		if err := statedir.WritePendingUnmount(dir, s); err != nil {
			t.Fatal(err)
		}
	}
	if found, broken := statedir.ListPendingUnmounts(dir); len(found) != 2 || len(broken) > 0 {
		t.Errorf("got %v, %v, want two", found, broken)
	}
	got, found, err := statedir.FindPendingUnmount(dir, one.Dir)
	if diff := cmp.Diff(one, got); err != nil || !found || diff != "" {
		t.Errorf("%v, %v, (-want +got):\n%s", found, err, diff)
	}
	for range 2 { // a second time is no error
		if err := statedir.RemovePendingUnmount(dir, one.Dir); err != nil {
			t.Error(err)
		}
	}
	if _, found, err := statedir.FindPendingUnmount(dir, one.Dir); found || err != nil {
		t.Errorf("still there: %v, %v", found, err)
	}
	if found, _ := statedir.ListPendingUnmounts(dir); len(found) != 1 || found[0].Dir != two.Dir {
		t.Errorf("left: %v", found)
	}
}

// TestRecords: the daemon loads its records from the same directory, and renames the
// files that it cannot read. Pending unmounts are not among them.
func TestRecords(t *testing.T) {
	dir := t.TempDir()
	if err := statedir.WritePendingUnmount(dir, pending("/k")); err != nil {
		t.Fatal(err)
	}
	store, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if records, broken, err := store.Load(); len(records)+len(broken) > 0 || err != nil {
		t.Errorf("%v, %v, %v", records, broken, err)
	}
	if found, _ := statedir.ListPendingUnmounts(dir); len(found) != 1 {
		t.Error("the pending unmount no longer exists")
	}
}

func TestBrokenPendingUnmount(t *testing.T) {
	dir := t.TempDir()
	if err := statedir.WritePendingUnmount(dir, pending("/k")); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.pending-unmount"))
	if len(files) != 1 {
		t.Fatalf("files: %v", files)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "torn": string(data[:len(data)/2]), "of another directory": strings.Replace(string(data), "/k", "/l", 1),
	} {
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, broken := statedir.ListPendingUnmounts(dir); len(found) > 0 || len(broken) != 1 {
			t.Errorf("%s: %v, %v", name, found, broken)
		}
		if _, found, err := statedir.FindPendingUnmount(dir, "/k"); found || err == nil {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

func TestNoPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := statedir.WritePendingUnmount(file, pending("/k")); err == nil {
		t.Error("written into a file")
	}
}
