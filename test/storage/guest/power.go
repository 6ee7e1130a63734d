package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Power says when a guest loses its power.
type Power struct {
	// Disks are the sizes in bytes of its disks, /dev/ubda and so on. What was written to them
	// outlives the power; what the guest had in memory does not.
	Disks []int64
	// Cuts is how often the power goes. After the last it stays.
	Cuts int
	// Seed decides when it goes: after one of the first Lines that a boot says, within Later.
	Seed  uint64
	Lines int
	Later time.Duration
}

// A Boot is one of many of a guest.
type Boot struct {
	// Number counts from 0. In the last one the power stays.
	Number int
	Last   bool
	// Seed is for the decisions of the test.
	Seed uint64
	// Said is what all boots before have said.
	Said []string

	t       *testing.T
	mu      sync.Mutex
	console *os.File
}

const (
	bootFile = "boot.json"
	// silence is how long a guest says nothing before it counts as stuck.
	silence = 40 * time.Minute
	// failed is said when the test has failed: the power stays, so that it can tell.
	failed = "failed"
)

var (
	errCut   = errors.New("the power is gone")
	errStuck = fmt.Errorf("the guest has said nothing for %v", silence)
)

// Cut runs the test that calls it in a guest, again and again on the same disks, since the power
// goes at random moments. There test is called, with what it may know of the boots before. All
// but the last call must go on until the power is gone.
func Cut(t *testing.T, p Power, test func(t *testing.T, b *Boot)) {
	t.Helper()
	if os.Getenv(envInside) != "" {
		b, err := thisBoot(t)
		if err != nil {
			t.Fatal(err)
		}
		test(t, b)
		return
	}
	root, dir := place(t)
	disks, err := p.blankDisks(dir)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(p.Seed, 0))
	var said []string
	for i := range p.Cuts + 1 {
		b := &Boot{Number: i, Last: i == p.Cuts, Seed: random.Uint64(), Said: said}
		line, later := 1+random.IntN(p.Lines), time.Duration(random.Int64N(int64(p.Later)))
		ok := t.Run(fmt.Sprintf("boot-%d", i), func(t *testing.T) {
			said = append(said, b.live(t, root, dir, disks, line, later)...)
		})
		if !ok {
			t.Fatalf("seed %d, boot %d", p.Seed, i)
		}
	}
}

// blankDisks makes the files of the disks, and returns the kernel's arguments that name them.
func (p Power) blankDisks(dir string) ([]string, error) {
	var args []string
	for i, size := range p.Disks {
		path := filepath.Join(dir, fmt.Sprintf("disk-%c", 'a'+i))
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return nil, err
		}
		if err := os.Truncate(path, size); err != nil {
			return nil, err
		}
		args = append(args, fmt.Sprintf("ubd%c=%s", 'a'+i, path))
	}
	return args, nil
}

// live runs a boot until its end, and returns what it has said.
func (b *Boot) live(t *testing.T, root, dir string, disks []string, line int, later time.Duration) []string {
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, bootFile), text, 0o600),
		os.RemoveAll(filepath.Join(dir, "output")), os.RemoveAll(filepath.Join(dir, "status"))); err != nil {
		t.Fatal(err)
	}
	shown, err := os.Create(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := &powerSwitch{line: line, later: later, cancel: cancel}
	if b.Last {
		s.line = math.MaxInt
	}
	s.quiet = time.AfterFunc(silence, func() { cancel(errStuck) })
	defer s.quiet.Stop()
	console := &listener{text: shown, hear: s.hear}
	began := time.Now()
	cmd := command(ctx, root, dir, disks...)
	cmd.Stdout, cmd.Stderr = console, console
	runErr := cmd.Run()
	said := console.said
	t.Logf("%d lines in %.1f s; the last of them: %q", len(said), time.Since(began).Seconds(), said[max(0, len(said)-12):])
	if cause := context.Cause(ctx); !errors.Is(cause, errCut) {
		b.wantEnd(t, dir, cause, runErr)
	}
	return said
}

// A powerSwitch is thrown some time after so many lines.
type powerSwitch struct {
	line   int
	later  time.Duration
	cancel func(cause error)
	quiet  *time.Timer
	thrown *time.Timer
}

func (s *powerSwitch) hear(said []string) {
	s.quiet.Reset(silence)
	switch last := said[len(said)-1]; {
	case last == failed:
		s.line = math.MaxInt
		if s.thrown != nil {
			s.thrown.Stop()
		}
	case len(said) == s.line:
		s.thrown = time.AfterFunc(s.later, func() { s.cancel(errCut) })
	}
}

// wantEnd fails the test unless this is the last boot, and has ended well.
func (b *Boot) wantEnd(t *testing.T, dir string, cause, err error) {
	t.Helper()
	console, consoleErr := os.ReadFile(filepath.Join(dir, "console"))
	output, outputErr := os.ReadFile(filepath.Join(dir, "output"))
	status, statusErr := os.ReadFile(filepath.Join(dir, "status"))
	if b.Last && cause == nil && string(status) == "0\n" {
		return
	}
	t.Errorf("the guest has ended with %q: %v\n%s\n%s", status, errors.Join(cause, err, outputErr, statusErr, consoleErr), output, console)
}
