package doctor_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// age makes the last change of a volume an old one.
func age(t *testing.T, stateDir, volume string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(stateDir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), volume) {
			continue
		}
		old := regexp.MustCompile(`"changed": *"[^"]*"`).ReplaceAll(text, []byte(`"changed":"2020-01-01T00:00:00Z"`))
		if err := os.WriteFile(file, old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecords: without a daemon its files tell what is stuck, dead, broken or
// left over.
func TestRecords(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	store, err := volstate.Open(n.o.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	hourAgo := time.Now().Add(-time.Hour)
	dir := filepath.Join(n.Root, "pods/uid-1/volumes/example.com~disk/pv2")
	for _, r := range []*volstate.Record{
		{Handle: "vol-1", Name: "pv1", Stage: volstate.Doing, LastError: "mount -o password=canary failed"},
		{Handle: "vol-2", Name: "pv2", Stage: volstate.Done, StagingPath: "/staged", Targets: map[string]*volstate.Target{
			dir: {Publish: volstate.Done, Bound: true, Dead: "transport endpoint is not connected"},
		}},
		{Handle: "vol-3", Name: "pv3", Stage: volstate.Doing},
		{Handle: "vol-4", Name: "pv4", Stage: volstate.Done, StageDead: "stale file handle", StagingPath: "/dead"},
	} {
		r.Driver, r.FlexDriver = csiName, "example.com/disk"
		if err := store.Put(r); err != nil {
			t.Fatal(err)
		}
	}
	age(t, n.o.StateDir, "pv1")
	if err := statedir.WritePendingUnmount(n.o.StateDir, statedir.PendingUnmount{Driver: "example.com/disk", Command: flex.CommandUnmount, Dir: "/gone", Time: hourAgo}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.o.StateDir, "torn.json"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := n.run()
	want(t, r, n.dir, "daemon-absent /run/s", "volume-stuck pv1", "mount-corrupted "+dir, "mount-corrupted /dead",
		"unmount-not-worked-off /gone", "state-file-broken /state/torn.json")
	if strings.Contains(text(t, r), "canary") {
		t.Error("there is a secret in the report")
	}
}
