package escape

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/testenv"
	"github.com/flex2csi/flex2csi/test/trace"
)

const (
	envCount   = "ESCAPE_COUNT"   // how many attempts
	envSeed    = "ESCAPE_SEED"    // which
	envAt      = "ESCAPE_AT"      // only the one with this number, told in full
	envAll     = "ESCAPE_ALL"     // go on after an escape, and count them by kind
	envTable   = "ESCAPE_TABLE"   // a file for how many there were
	envLenient = "ESCAPE_LENIENT" // do not look at programs' surroundings
	// workers try side by side, each in a world of its own: most wait for something.
	workers = 6
	// fresh is after how many attempts a world's images are made again.
	fresh = 200
	// progress is after how many attempts it is told how many there were.
	progress = 10000
)

// number is that of an environment variable, or other.
func number(t *testing.T, name string, other uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return other
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// A campaign is many attempts.
type campaign struct {
	t           *testing.T
	seed, count uint64
	all         bool

	sync.Mutex
	next    uint64
	kinds   map[string]*tally
	escapes map[string]string // by what they do: how to have it again
	since   time.Time
}

// A tally is how many attempts of a kind got how far.
type tally struct {
	tried, succeeded int
	reached          [stages]int
}

// TestEscape attacks the driver.
func TestEscape(t *testing.T) {
	dir, binary := prepare(t)
	c := &campaign{t: t, kinds: map[string]*tally{}, escapes: map[string]string{}, all: os.Getenv(envAll) != "", since: time.Now()}
	c.count, c.seed = number(t, envCount, 3000), number(t, envSeed, rand.Uint64N(1e9))
	first, parallel := uint64(0), workers
	if os.Getenv(envAt) != "" {
		first, parallel = number(t, envAt, 0), 1
		c.count = first + 1
	}
	c.next = first
	t.Logf("%s=%d %s=%d", envSeed, c.seed, envCount, c.count)
	// All before the first attempt: what is mounted when a world is made is none of its volumes.
	worlds := make([]*world, parallel)
	common := newCommon(t, dir, binary)
	for n := range worlds {
		worlds[n] = newWorld(t, fmt.Sprintf("%s/w%d", dir, n), common)
		worlds[n].lenient = os.Getenv(envLenient) != ""
	}
	var wait sync.WaitGroup
	for _, w := range worlds {
		watcher, err := trace.NewWatcher(selected())
		if err != nil {
			t.Fatal(err)
		}
		defer watcher.Close()
		wait.Go(func() { c.work(w, watcher) })
	}
	wait.Wait()
	for _, what := range slices.Sorted(maps.Keys(c.escapes)) {
		t.Errorf("ESCAPE: %s\n%s", what, c.escapes[what])
	}
	t.Log(c.table())
	c.publish(os.Getenv(envTable))
}

// take hands out the numbers of attempts.
func (c *campaign) take() (uint64, bool) {
	c.Lock()
	defer c.Unlock()
	if c.next >= c.count || len(c.escapes) > 0 && !c.all {
		return 0, false
	}
	c.next++
	if c.next%progress == 0 {
		c.t.Logf("%d in %v", c.next, time.Since(c.since).Round(time.Second))
	}
	return c.next - 1, true
}

func (c *campaign) work(w *world, watcher *trace.Watcher) {
	for done := 1; ; done++ {
		n, ok := c.take()
		if !ok {
			return
		}
		if done%fresh == 0 {
			if err := w.refresh(); err != nil {
				c.t.Error(err)
				return
			}
		}
		a := w.attempt(c.seed, n)
		o, err := w.try(watcher, a)
		if err != nil {
			c.t.Errorf("attempt %d: %v", n, err)
			return
		}
		if os.Getenv(envAt) != "" {
			c.t.Logf("%s: %v, success %t, %q\n%s", a.kind, o.reached, o.success, o.escapes, shell(o.argv))
		}
		c.note(w, watcher, n, a, o)
	}
}

// attempt makes the attempt with a number.
func (w *world) attempt(seed, n uint64) *attempt {
	m := &maker{Rand: rand.New(rand.NewPCG(seed, n)), w: w}
	if n%every == 0 {
		return m.attack(n / every)
	}
	return m.make()
}

func (c *campaign) note(w *world, watcher *trace.Watcher, n uint64, a *attempt, o *outcome) {
	kind, what := strings.Join(strings.Fields(a.kind), " "), ""
	if len(o.escapes) > 0 {
		what = w.general(o.escapes[0])
	}
	c.Lock()
	c.add(kind, o)
	c.add("all", o)
	c.add("with driver "+w.drivers[a.driver].name[len(vendor)+1:], o)
	for _, way := range a.ways {
		c.add(way, o)
	}
	known := what == "" || c.escapes[what] != ""
	if !known {
		c.escapes[what] = "being made shorter"
	}
	c.Unlock()
	if known {
		return
	}
	text := fmt.Sprintf("attempt %d of %s=%d (%s), after %v\n%s", n, envSeed, c.seed, kind, time.Since(c.since).Round(time.Millisecond), w.general(w.shorten(watcher, a, what)))
	c.Lock()
	c.escapes[what] = text
	c.Unlock()
}

func (c *campaign) add(kind string, o *outcome) {
	if c.kinds[kind] == nil {
		c.kinds[kind] = &tally{}
	}
	k := c.kinds[kind]
	k.tried++
	k.reached[o.reached]++
	if o.success {
		k.succeeded++
	}
}

// general takes out of a text what differs between worlds.
func (w *world) general(text string) string {
	loopName := regexp.MustCompile("/dev/loop[0-9]+")
	return loopName.ReplaceAllString(strings.NewReplacer(w.dir, "W", w.common.dir, "C").Replace(text), "/dev/loopN")
}

// publish writes the table to a file of the machine.
func (c *campaign) publish(file string) {
	if file == "" {
		return
	}
	if err := errors.Join(writable(), os.WriteFile(file, []byte(c.table()), 0o644)); err != nil {
		c.t.Error(err)
	}
}

// table is how many attempts there were, by kind.
func (c *campaign) table() string {
	var b strings.Builder
	line := func(name string, k *tally) {
		fmt.Fprintf(&b, "%-44s %7d %8d %8d %8d %8d %8d\n", name, k.tried, k.reached[refused], k.reached[looked], k.reached[worked], k.reached[mounted], k.succeeded)
	}
	fmt.Fprintf(&b, "%s=%d: %d attempts in %v\n%-44s %7s %8s %8s %8s %8s %8s\n", envSeed, c.seed, c.next, time.Since(c.since).Round(time.Second), "kind", "tried", "refused", "looked", "worked", "mounted", "success")
	byTried := func(x, y string) int { return cmp.Or(c.kinds[y].tried-c.kinds[x].tried, strings.Compare(x, y)) }
	for _, name := range slices.SortedFunc(maps.Keys(c.kinds), byTried) {
		line(name, c.kinds[name])
	}
	return b.String()
}

// TestEndsMeanwhile: a thread that ended between a system call and the question what it had opened had
// opened "".
func TestEndsMeanwhile(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	p := trace.Process{ID: cmd.Process.Pid, PID: cmd.Process.Pid}
	g := &guard{driver: &driver{}}
	if g.bad(p, "opens %s for reading", "/etc/shadow") || len(g.escapes) != 1 {
		t.Errorf("of a process that runs: %q", g.escapes)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the process has no files any more", func() bool { return p.Link("fd/0") == "" })
	if !g.bad(p, "opens %s for reading", p.Link("fd/0")) || len(g.escapes) != 1 {
		t.Errorf("of one that was killed: %q", g.escapes)
	}
}
