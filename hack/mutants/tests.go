package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/flex2csi/flex2csi/hack/mutants/point"
)

// A test is one function of a test program.
type test struct {
	program testProgram
	name    string
	took    time.Duration
	// reaches has the points at which it would notice a difference.
	reaches map[int]bool
}

// A bench runs tests, each in a directory of its own.
type bench struct {
	work string
	log  func(format string, args ...any)
}

// outcome is how test functions ended.
type outcome struct {
	failed bool
	// by is the first one that failed, or why the program ended.
	by string
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: ([^ /]+)`)

// run runs functions of one program, with the environment.
func (b *bench) run(ctx context.Context, p testProgram, names []string, limit time.Duration, env ...string) (outcome, error) {
	temp, err := os.MkdirTemp(b.work, "run")
	if err == nil {
		err = os.Chmod(temp, 0o755)
	}
	if err != nil {
		return outcome{}, fmt.Errorf("make a directory for a test: %w", err)
	}
	defer os.RemoveAll(temp)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{p.path, "-test.run", "^(" + strings.Join(names, "|") + ")$", "-test.failfast", "-test.count=1"}
	if os.Geteuid() == 0 { // what a wrong program mounts, or leaves running, ends with it
		args = append([]string{"unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), append(env, "TMPDIR="+temp)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return outcome{true, "the time limit"}, nil
	case err == nil:
		return outcome{}, nil
	case !errors.As(err, new(*exec.ExitError)):
		return outcome{}, fmt.Errorf("run the tests of %s: %w", p.pkg, err)
	}
	if m := failed.FindSubmatch(out.Bytes()); m != nil {
		return outcome{true, string(m[1])}, nil
	}
	return outcome{true, "its end"}, nil
}

// trace runs each function of a program by itself, without a mutant.
func (b *bench) trace(ctx context.Context, p testProgram) ([]test, error) {
	list, err := output(ctx, p.path, "-test.list", "^Test")
	if err != nil {
		return nil, err
	}
	var tests []test
	for name := range strings.FieldsSeq(list) {
		t, err := b.traceOne(ctx, p, name)
		if err != nil {
			return nil, err
		}
		if t != nil {
			tests = append(tests, *t)
		}
	}
	return tests, nil
}

// traceLimit bounds a function without a mutant; one that takes longer is not used.
const traceLimit = 2 * time.Minute

func (b *bench) traceOne(ctx context.Context, p testProgram, name string) (*test, error) {
	reached := filepath.Join(b.work, "reached")
	if err := os.WriteFile(reached, nil, 0o666); err != nil {
		return nil, fmt.Errorf("make the list of what is reached: %w", err)
	}
	began := time.Now()
	o, err := b.run(ctx, p, []string{name}, traceLimit, point.Reached+"="+reached)
	if err != nil {
		return nil, err
	}
	if o.failed {
		b.log("not used, since it fails as it is (%s): %s %s", o.by, p.pkg, name)
		return nil, nil
	}
	t := &test{program: p, name: name, took: time.Since(began), reaches: map[int]bool{}}
	text, err := os.ReadFile(reached)
	if err != nil {
		return nil, fmt.Errorf("read what is reached: %w", err)
	}
	for field := range strings.FieldsSeq(string(text)) {
		id, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("read what is reached: %w", err)
		}
		t.reaches[id] = true
	}
	return t, nil
}

// A round is functions of one program that run in one process.
type round struct {
	program testProgram
	names   []string
	took    time.Duration
}

// rounds has the functions that may notice a mutant: its last killer, then those of its own
// package, then the others, the quick ones first.
func rounds(m mutant, tests []test, killer string) []round {
	byProgram := map[string]*round{}
	var all []round
	for _, t := range tests {
		if !t.reaches[m.ID] {
			continue
		}
		if t.program.pkg+" "+t.name == killer {
			all = append(all, round{t.program, []string{t.name}, t.took})
			continue
		}
		r := byProgram[t.program.pkg]
		if r == nil {
			r = &round{program: t.program}
			byProgram[t.program.pkg] = r
		}
		r.names, r.took = append(r.names, t.name), r.took+t.took
	}
	others := slices.SortedFunc(maps.Values(byProgram), func(a, b *round) int {
		if own := a.program.pkg == m.Package; own != (b.program.pkg == m.Package) {
			if own {
				return -1
			}
			return 1
		}
		return int(a.took - b.took)
	})
	for _, r := range others {
		all = append(all, *r)
	}
	return all
}

// judge returns what killed a mutant; "" if nothing did.
func (b *bench) judge(ctx context.Context, m mutant, tests []test, killer string) (string, error) {
	for _, r := range rounds(m, tests, killer) {
		o, err := b.run(ctx, r.program, r.names, 10*time.Second+3*r.took, point.Chosen+"="+strconv.Itoa(m.ID))
		if err != nil {
			return "", err
		}
		if o.failed {
			return r.program.pkg + " " + o.by, nil
		}
	}
	return "", nil
}
