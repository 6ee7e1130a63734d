package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// kinds of world; a campaign has them in turn.
func kinds() []plan {
	const directories = "--directories"
	return []plan{
		{Name: "staged", Driver: []string{directories}, Volumes: 12, Pods: 10},
		{Name: "attached", Driver: []string{directories, "--attach"}, Attach: true, Volumes: 12, Pods: 10},
		{Name: "published only", Driver: []string{directories, "--no-stage"}, NoStage: true, Volumes: 12, Pods: 10},
		{Name: "disks", Driver: []string{"--attach"}, Attach: true, Images: true, Volumes: 6, Pods: 5},
	}
}

// TestCampaign lets faults happen to some nodes. FAULTS_DURATION, FAULTS_COUNT
// (life cycles, of all worlds together), FAULTS_SEED and FAULTS_WORLDS say
// otherwise than the short run.
func TestCampaign(t *testing.T) {
	testenv.Need(t, "root", "mount", "ext4")
	duration, err := time.ParseDuration(variable("FAULTS_DURATION", "45s"))
	if err != nil {
		t.Fatal(err)
	}
	seed := number(t, "FAULTS_SEED", uint64(time.Now().UnixNano()%1e9))
	worlds := int(number(t, "FAULTS_WORLDS", uint64(len(kinds()))))
	cycles := int(number(t, "FAULTS_COUNT", 0)) / worlds
	t.Logf("seed %d", seed)
	total := &report{Counts: map[string]int{}}
	// Not t.Parallel, which lets as few worlds live at a time as there are CPUs.
	var side sync.WaitGroup
	for n := range worlds {
		p := kinds()[n%len(kinds())]
		p.Name, p.Seed, p.Duration, p.Cycles = fmt.Sprintf("%s %d", p.Name, n), seed+uint64(n), duration, cycles
		side.Go(func() {
			t.Run(p.Name, func(t *testing.T) { total.add(campaign(t, &p)) })
		})
	}
	side.Wait()
	t.Logf("all worlds:\n%s", total)
}

// campaign lets faults happen to a world.
func campaign(t *testing.T, p *plan) *report {
	p.Round, p.RPC, p.Grace = 8*time.Second, time.Second, 1500*time.Millisecond
	if p.Images {
		p.RPC = 3 * time.Second
	}
	p.Exec = 10
	r := inWorld(t, p)
	if r.Counts[countCycles] == 0 {
		t.Errorf("seed %d: no volume lived its life", p.Seed)
	}
	return r
}

// inWorld runs a world in a process of its own.
func inWorld(t *testing.T, p *plan) *report {
	p.Dir = shortDir(t)
	p.Daemon, p.Flexdriver = os.Getenv(envDaemon), os.Getenv(envFlexdriver)
	input, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+roleWorld)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	var output, log bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, &log
	runtime.LockOSThread() // Pdeathsig follows the thread that forked
	defer runtime.UnlockOSThread()
	start := time.Now()
	err = cmd.Run()
	var r report
	if err == nil {
		err = json.Unmarshal(output.Bytes(), &r)
	}
	if err != nil {
		t.Fatalf("seed %d: the world broke down: %v\n%s%s", p.Seed, err, output.String(), log.String())
	}
	t.Logf("seed %d: %v\n%s", p.Seed, time.Since(start).Round(time.Second), &r)
	for _, n := range r.Notes {
		t.Log(n)
	}
	for _, w := range r.Wrong {
		t.Errorf("seed %d: %s", p.Seed, w)
	}
	if len(r.Wrong) > 0 {
		t.Log(log.String())
	}
	return &r
}

// shortDir is for sockets: their path has at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	testenv.LeakCheck(t, dir)
	return dir
}

func (r *report) add(other *report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, n := range other.Counts {
		r.Counts[what] += n
	}
}

func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(r.Counts)) {
		fmt.Fprintf(&b, "%8d %s\n", r.Counts[what], what)
	}
	return b.String()
}

func variable(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	n, err := strconv.ParseUint(variable(name, strconv.FormatUint(otherwise, 10)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
