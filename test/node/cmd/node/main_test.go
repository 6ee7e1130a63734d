package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// envCommand makes the test binary the command.
const envCommand = "NODE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(envCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A place is the directory of a node.
type place string

func newPlace(t *testing.T) place {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	p := place(filepath.Join(dir, "n"))
	t.Cleanup(func() {
		p.try(t, "down")
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	testenv.LeakCheck(t, dir)
	return p
}

// try runs the command and returns its status and what it says.
func (p place) try(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, exe, append([]string{"--dir", string(p)}, args...)...)
	cmd.Env = append(os.Environ(), envCommand+"=1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (p place) do(t *testing.T, args ...string) string {
	t.Helper()
	status, out, errs := p.try(t, args...)
	if status != 0 {
		t.Fatalf("node %q ended with %d: %s%s", args, status, out, errs)
	}
	return out
}

// init is the node's first process.
func (p place) init(t *testing.T) (outside, first int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(string(p), "running.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Outside, Init int }
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r.Outside, r.Init
}

func groups(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"/sys/fs/cgroup/flex2csi-node-*", "/sys/fs/cgroup/*/flex2csi-node-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

func TestTwoNodes(t *testing.T) {
	testenv.Need(t, "node", "prog:nsenter")
	before := groups(t)
	a, b := newPlace(t), newPlace(t)
	for _, p := range []place{a, b} {
		if out := p.do(t, "up"); !strings.Contains(out, "up after") {
			t.Errorf("up: %q", out)
		}
	}
	a.do(t, "kubectl", "create", "namespace", "here")
	for p, want := range map[place]string{a: "namespace/here\n", b: ""} {
		if out := p.do(t, "kubectl", "get", "namespace", "here", "--ignore-not-found", "-o", "name"); out != want {
			t.Errorf("a namespace of one of two nodes: %q, want %q", out, want)
		}
	}
	if status, _, errs := a.try(t, "kubectl", "get", "no-such-kind"); status != 1 || !strings.Contains(errs, "no-such-kind") {
		t.Errorf("kubectl that fails: %d, %q", status, errs)
	}
	killed(t, a)
	a.do(t, "up") // once more, where the other one was
	if out := a.do(t, "kubectl", "get", "namespace", "here", "--ignore-not-found", "-o", "name"); out != "" {
		t.Errorf("the new node has %q", out)
	}
	for _, p := range []place{a, b} {
		if out := p.do(t, "down"); !strings.Contains(out, "gone") {
			t.Errorf("down: %q", out)
		}
		if _, err := os.Stat(string(p)); err == nil {
			t.Errorf("%s is still there", p)
		}
		if out := p.do(t, "down"); !strings.Contains(out, "no node") {
			t.Errorf("down once more: %q", out)
		}
	}
	if after := groups(t); len(after) > len(before) {
		t.Errorf("control groups are left: %q, before there were %q", after, before)
	}
}

// killed: with the process that started it ends all of a node.
func killed(t *testing.T, p place) {
	t.Helper()
	outside, first := p.init(t)
	if err := unix.Kill(outside, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); unix.Kill(first, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d, the first of a node that was killed, is still there", first)
		}
	}
	if status, _, errs := p.try(t, "kubectl", "get", "nodes"); status != 1 || !strings.Contains(errs, "make node-up") {
		t.Errorf("kubectl in a node that was killed: %d, %q", status, errs)
	}
}

func TestUpFails(t *testing.T) {
	testenv.Need(t, "node")
	t.Setenv("FLEX_PROGRAMS", t.TempDir())
	p := newPlace(t)
	if status, _, errs := p.try(t, "up"); status != 1 || !strings.Contains(errs, "etcd") {
		t.Errorf("without programs: %d, %q", status, errs)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {}, {"fly"}} {
		var out, errs bytes.Buffer
		c := command{stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
		if status := c.run(args); status == 0 || !strings.Contains(strings.ToLower(errs.String()), "usage") || out.Len() > 0 {
			t.Errorf("node %q: %d, %q, %q", args, status, out.String(), errs.String())
		}
	}
}
