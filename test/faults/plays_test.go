package faults

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// The plays; none is the campaign.
const (
	// "kill NAME" kills the daemon in the middle of each callout of the life of
	// that name; this one kills flexdriver while there is no daemon.
	playKill = "kill "
	alone    = "alone"
	// playHang has a volume hang, and then a driver.
	playHang = "hang"
	// playUpgrade replaces the programs under load.
	playUpgrade = "upgrade"
	// playHandOver has daemons take over from each other under load.
	playHandOver = "hand-over"
)

func (w *world) play() {
	name, kill := strings.CutPrefix(w.Play, playKill)
	switch {
	case kill && name == alone:
		w.killAlone()
	case kill:
		w.kill(name)
	case w.Play == playHang:
		w.hang()
	case w.Play == playUpgrade:
		w.upgrade()
	case w.Play == playHandOver:
		w.handOver()
	default:
		w.run()
	}
}

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

// TestHang: what hangs is no trouble for others.
func TestHang(t *testing.T) {
	testenv.Need(t, "root", "mount")
	p := plan{Name: "hang", Play: playHang, Seed: 1, Driver: []string{"--directories"}, Volumes: 4, RPC: 5 * time.Second, Grace: 200 * time.Millisecond}
	inWorld(t, &p)
}

// TestUpgrade: programs are replaced under load, and no call fails.
func TestUpgrade(t *testing.T) {
	testenv.Need(t, "root", "mount")
	p := plan{Name: "upgrade", Play: playUpgrade, Seed: 1, Driver: []string{"--directories"}, Volumes: 4, RPC: 5 * time.Second, Grace: time.Minute}
	dir := t.TempDir()
	p.NewDaemon, p.NewFlexdriver = otherBuild(t, dir, "flex2csi"), otherBuild(t, dir, "flexdriver")
	inWorld(t, &p)
}

// TestHandOver: a daemon stands by until the one before ends, as with a rolling
// update that surges, and no call fails whatever way either of them ends.
func TestHandOver(t *testing.T) {
	testenv.Need(t, "root", "mount")
	p := plan{Name: "hand-over", Play: playHandOver, Seed: 1, Driver: []string{"--directories"}, Volumes: 4, RPC: 5 * time.Second, Grace: time.Minute}
	p.NewDaemon = otherBuild(t, t.TempDir(), "flex2csi")
	r := inWorld(t, &p)
	if n := r.counted(countHandOvers); n < 20 {
		t.Errorf("only %d hand-overs", n)
	}
}

// otherBuild builds a program so that it differs from the other one.
func otherBuild(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w -buildid=other", "-o", path, "../../cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build another %s: %v\n%s", name, err, out)
	}
	return path
}
