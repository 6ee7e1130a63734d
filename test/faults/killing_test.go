package faults

import (
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/testenv"
)

// TestKillDaemon kills the daemon after each write of its state, each message
// to the driver and each mount of each callout; with FAULTS_ALL after every
// system call that changes anything.
func TestKillDaemon(t *testing.T) {
	testenv.Need(t, "root", "mount")
	total := &report{Counts: map[string]int{}}
	var side sync.WaitGroup
	names := append(slices.Collect(maps.Keys(lives())), alone)
	for _, name := range names {
		side.Go(func() {
			t.Run(name, func(t *testing.T) {
				p := plan{Name: "kill " + name, Play: "kill " + name, All: os.Getenv("FAULTS_ALL") != "", Seed: 1, Driver: []string{"--directories", "--attach"}, Attach: true, Volumes: 4}
				p.RPC, p.Grace = 2*time.Second, 200*time.Millisecond
				total.add(inWorld(t, &p))
			})
		})
	}
	side.Wait()
	t.Logf("all lives:\n%s", total)
}
