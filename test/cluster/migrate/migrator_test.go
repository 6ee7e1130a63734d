package migrate_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A migrator is an operator with the program, a directory for the journal and a way
// to the API server.
type migrator struct {
	w      *world
	t      *testing.T
	proxy  *controlplane.Proxy
	token  string
	dir    string // the journal's
	config string
	// patience is the program's --timeout.
	patience time.Duration
	seen     []controlplane.Request
}

func (w *world) migrator(token string) *migrator {
	w.t.Helper()
	o := &migrator{w: w, t: w.t, proxy: w.Proxy(), token: token, dir: filepath.Join(w.t.TempDir(), "journal"), patience: time.Minute}
	o.config = filepath.Join(w.t.TempDir(), "config.yaml")
	w.check(os.WriteFile(o.config, []byte(configuration), 0o600))
	return o
}

// A run is one of the program that goes on.
type run struct {
	migrator *migrator
	command  *exec.Cmd
	args     []string
	out      output
	ended    chan struct{}
}

// output is what it says, while it does.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// begin starts flex2csi migrate.
func (o *migrator) begin(args ...string) *run {
	o.t.Helper()
	all := append([]string{"migrate", args[0], "--kubeconfig", o.proxy.Kubeconfig(o.token), "--journal", o.dir}, args[1:]...)
	switch args[0] {
	case "apply":
		all = append(all, "--timeout", o.patience.String(), "--config", o.config, "--yes")
	case "rollback":
		all = append(all, "--timeout", o.patience.String(), "--config", o.config, "--yes")
	case "resume":
		all = append(all, "--timeout", o.patience.String(), "--config", o.config)
	}
	r := &run{migrator: o, args: all, ended: make(chan struct{})}
	r.command = exec.CommandContext(o.t.Context(), filepath.Join(os.Getenv("FLEX_PROGRAMS"), "flex2csi"), all...)
	r.command.Stdout, r.command.Stderr = &r.out, &r.out
	if err := r.command.Start(); err != nil {
		o.t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.command.Wait() // the exit code says it
	}()
	return r
}

// wait returns the exit code; -1: it was killed.
func (r *run) wait() int {
	r.migrator.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(5 * time.Minute):
		_ = r.command.Process.Kill()
		<-r.ended
		r.migrator.t.Fatalf("%q does not end:\n%s", r.args, &r.out)
	}
	return r.command.ProcessState.ExitCode()
}

// kill is kill -9, and returns when it is dead.
func (r *run) kill() {
	_ = r.command.Process.Kill() // it may have ended
	<-r.ended
}

// killedSaying waits until it says something, and kills it if it has not ended
// with that.
func (r *run) killedSaying(text string) {
	r.migrator.t.Helper()
	testenv.Eventually(r.migrator.t, fmt.Sprintf("%q says %q", r.args, text), func() bool {
		select {
		case <-r.ended:
			if strings.Contains(r.out.String(), text) {
				return true
			}
			r.migrator.t.Fatalf("%q: exit code %d without %q:\n%s", r.args, r.code(), text, &r.out)
		default:
		}
		return strings.Contains(r.out.String(), text)
	})
	r.kill()
}

// do runs it to its end, which has to have this exit code, and returns what it
// said.
func (o *migrator) do(code int, args ...string) string {
	o.t.Helper()
	r := o.begin(args...)
	if got := r.wait(); got != code {
		o.t.Fatalf("%q: exit code %d, want %d:\n%s", r.args, got, code, &r.out)
	}
	return r.out.String()
}

// killed runs it and kills it at a moment; false: it came to its end before.
func (o *migrator) killed(m controlplane.Moment, args ...string) (bool, *run) {
	o.t.Helper()
	var r *run
	var mu sync.Mutex // the first request may come before begin returns
	m.Then = func() {
		mu.Lock()
		defer mu.Unlock()
		r.kill()
	}
	mu.Lock()
	o.proxy.At(&m)
	r = o.begin(args...)
	mu.Unlock()
	code := r.wait()
	o.proxy.At(nil)
	return code == -1, r
}

// at has something happen when the program makes a request, which then has no
// answer, and returns the run.
func (o *migrator) at(m controlplane.Moment, args ...string) *run {
	o.t.Helper()
	happened := false
	then := m.Then
	m.Then = func() { happened = true; then() }
	o.proxy.At(&m)
	r := o.begin(args...)
	r.wait()
	o.proxy.At(nil)
	if !happened {
		o.t.Fatalf("%q: what was to happen has not:\n%s", r.args, &r.out)
	}
	return r
}

func (r *run) code() int { return r.command.ProcessState.ExitCode() }

// wants wants an exit code, and texts in what it said.
func (r *run) wants(code int, texts ...string) {
	r.migrator.t.Helper()
	if r.code() != code {
		r.migrator.t.Errorf("%q: exit code %d, want %d:\n%s", r.args, r.code(), code, &r.out)
	}
	for _, text := range texts {
		if !strings.Contains(r.out.String(), text) {
			r.migrator.t.Errorf("%q: no %q in\n%s", r.args, text, &r.out)
		}
	}
}

// describe says what was done when.
func describe(m controlplane.Moment, what string) string {
	if m.After {
		return fmt.Sprintf("%s killed after %d", what, m.N)
	}
	return fmt.Sprintf("%s killed before %d", what, m.N)
}
