package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/utils/exec"
)

// call is one execution of the driver by Kubernetes' code.
type call struct {
	args     []string // without the program
	output   string   // stdout and stderr, as the kubelet reads them
	err      error
	start    time.Time
	end      time.Time
	tampered bool // run by a wrapper that kills it or makes it fail
}

func (c *call) command() string { return c.args[0] }

// answer is what the kubelet understands (pkg/volume/flexvolume/driver-call.go,
// DriverStatus). Attached is a pointer here to see whether it is explicit.
type answer struct {
	Status       string          `json:"status"`
	Message      string          `json:"message"`
	Device       string          `json:"device"`
	VolumeName   string          `json:"volumeName"`
	Attached     *bool           `json:"attached"`
	Capabilities map[string]bool `json:"capabilities"`
}

func (c *call) answer(t *testing.T) answer {
	t.Helper()
	a, err := parseAnswer(c.output)
	if err != nil {
		t.Fatalf("%q: %v", c.args, err)
	}
	return a
}

// parseAnswer takes exactly one JSON object with known fields and no other byte
// than the newline at its end.
func parseAnswer(output string) (answer, error) {
	var a answer
	body, ended := strings.CutSuffix(output, "\n")
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	switch err := dec.Decode(&a); {
	case err != nil:
		return a, fmt.Errorf("answered %q: %v", output, err)
	case int(dec.InputOffset()) != len(body) || !ended || !utf8.ValidString(output):
		return a, fmt.Errorf("answered more than one line with one JSON object: %q", output)
	case !slices.Contains([]string{"Success", "Failure", "Not supported"}, a.Status):
		return a, fmt.Errorf("unknown status in %q", output)
	case a.Status != "Success" && a.Message == "":
		return a, fmt.Errorf("no message in %q", output)
	}
	return a, nil
}

// wrapper turns the command line of a driver call into the one to execute.
type wrapper func(argv []string) []string

// runner is the exec.Interface through which Kubernetes' code runs the driver.
// It remembers every call and can put a wrapper around some.
type runner struct {
	exec.Interface

	mu    sync.Mutex
	calls []*call
	wrap  map[string]wrapper
}

var _ exec.Interface = (*runner)(nil)

func newRunner() *runner {
	return &runner{Interface: exec.New(), wrap: map[string]wrapper{}}
}

// Command is the only way in which pkg/volume/flexvolume starts a driver.
func (r *runner) Command(path string, args ...string) exec.Cmd {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &call{args: args}
	argv := append([]string{path}, args...)
	if w := r.wrap[args[0]]; w != nil {
		argv, c.tampered = w(argv), true
	}
	// The kubelet gives no time limit; without one a driver that hangs would
	// hang the tests. It is above every deadline that a test expects.
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	return &recordedCmd{Cmd: r.CommandContext(ctx, argv[0], argv[1:]...), cancel: cancel, runner: r, call: c}
}

// recordedCmd writes down what CombinedOutput, which the plugin calls, returns.
type recordedCmd struct {
	exec.Cmd
	cancel context.CancelFunc
	runner *runner
	call   *call
}

func (c *recordedCmd) CombinedOutput() ([]byte, error) {
	defer c.cancel()
	c.call.start = time.Now()
	out, err := c.Cmd.CombinedOutput()
	c.call.end, c.call.output, c.call.err = time.Now(), string(out), err
	c.runner.mu.Lock()
	defer c.runner.mu.Unlock()
	c.runner.calls = append(c.runner.calls, c.call)
	if a, _ := parseAnswer(c.call.output); c.call.command() == "init" && a.Status == "Success" && a.Capabilities == nil {
		// The kubelet would die of it (plugin.go, NewFlexVolumePlugin) and this
		// process with it, before it can say why. TestKubeletDies… shows it.
		return []byte(`{"status":"Failure","message":"init without capabilities"}`), err
	}
	return out, err
}

// wrapped runs f with w around every call of one command.
func (r *runner) wrapped(command string, w wrapper, f func()) {
	set := func(w wrapper) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.wrap[command] = w
	}
	set(w)
	defer set(nil)
	f()
}

// made returns the calls so far of the given commands, or of all.
func (r *runner) made(commands ...string) []*call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.calls), func(c *call) bool {
		return len(commands) > 0 && !slices.Contains(commands, c.command())
	})
}

// last returns the latest call of command.
func (r *runner) last(t *testing.T, command string) *call {
	t.Helper()
	calls := r.made(command)
	if len(calls) == 0 {
		t.Fatalf("the driver was never called with %s", command)
	}
	return calls[len(calls)-1]
}

// sequence returns the commands so far without init and getvolumename, which
// come at any time.
func (r *runner) sequence() []string {
	var commands []string
	for _, c := range r.made() {
		if name := c.command(); name != "init" && name != "getvolumename" {
			commands = append(commands, name)
		}
	}
	return commands
}

// checkCalls holds every call to the rules without exception: exit 0, one JSON
// object, and "Not supported", which the kubelet remembers, only where it is
// always the answer. A call that a test kills or starves is exempt.
func (r *runner) checkCalls(t *testing.T) {
	t.Helper()
	for _, c := range r.made() {
		if c.tampered {
			continue
		}
		a, err := parseAnswer(c.output)
		switch {
		case c.err != nil:
			t.Errorf("%q ended with %v, output %q", c.args, c.err, c.output)
		case err != nil:
			t.Errorf("%q: %v", c.args, err)
		case a.Status == "Not supported" && c.command() != "getvolumename":
			t.Errorf("%q answered %q, which is for what a driver never does", c.args, c.output)
		}
	}
}

// lockedBuffer collects the log of Kubernetes' code.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
