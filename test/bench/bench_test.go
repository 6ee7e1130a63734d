package main

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestGroups measures each group in so few rounds that its figures mean nothing: what
// is measured still has to work, or only the next make bench would tell.
func TestGroups(t *testing.T) {
	testenv.Need(t, "root", "mount", "ext4", "prog:go")
	dir, err := os.MkdirTemp("", "bench") //nolint:usetesting // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	b, err := newBench(t.Context(), dir, newPrinter(io.Discard, false), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b.scale = scale{rounds: 2, calls: inFlight, mounts: 20, records: 20, disks: inFlight, lives: inFlight, mounted: 3, rest: 10 * time.Millisecond}
	for _, g := range groups() {
		t.Run(g.name, func(t *testing.T) {
			rows, err := g.measure(b)
			if err != nil || len(rows) == 0 {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
		})
	}
}
