//go:build unix

package migrate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A blow is what happens to the terminal of the operator while there is no PersistentVolume.
type blow struct {
	name string
	// do has the read end of standard error, which no test reads.
	do func(program *exec.Cmd, err *os.File)
}

func blows() []blow {
	send := func(p *exec.Cmd, signals ...syscall.Signal) {
		for _, s := range signals {
			_ = p.Process.Signal(s)
			time.Sleep(50 * time.Millisecond) // equal ones that wait are one
		}
	}
	return []blow{
		{"Ctrl-C with a pipe", func(p *exec.Cmd, err *os.File) { err.Close(); send(p, syscall.SIGINT) }},
		{"a closed pipe and SIGPIPE", func(p *exec.Cmd, err *os.File) { err.Close(); send(p, syscall.SIGPIPE) }},
		{"a dropped session", func(p *exec.Cmd, err *os.File) { err.Close(); send(p, syscall.SIGHUP, syscall.SIGHUP, syscall.SIGTERM) }},
		{"a session that ends by SIGTERM", func(p *exec.Cmd, _ *os.File) { send(p, syscall.SIGTERM, syscall.SIGHUP) }},
		{"Ctrl-Z", func(p *exec.Cmd, _ *os.File) { send(p, syscall.SIGTSTP) }},
	}
}

// TestTerminal: 2>&1 | tee log with Ctrl-C, or a dropped SSH session, ended apply, resume and
// rollback where there was no PersistentVolume, and the claim stayed Lost.
func TestTerminal(t *testing.T) {
	program, err := testenv.Program(t.TempDir(), "FLEX2CSI_BINARY", "../../cmd/flex2csi")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"apply", "resume", "rollback"} {
		for _, b := range blows() {
			t.Run(strings.ReplaceAll(command+"/"+b.name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				struck(t, program, command, b)
			})
		}
	}
}

// struck runs a command of a program, and has the blow come while it creates the second
// PersistentVolume. That request is lost, so that a program which has ended leaves none.
func struck(t *testing.T, program, command string, b blow) {
	j := newJourney(t, true, journal.Live)
	j.prepare(command)
	window, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	j.api.before = func(_ int, request string) (err error) {
		if request == "create persistentvolumes" {
			once.Do(func() {
				close(window)
				<-release
				err = apierrors.NewServiceUnavailable("away")
			})
		}
		return err
	}
	j.api.seen = nil // the guard reads the journal's directory
	kubeconfig, hangUp := j.api.serve()
	p, pipe := j.start(program, command, kubeconfig)
	select {
	case <-window:
	case <-time.After(time.Minute):
		close(release)
		t.Fatal("it never comes to the window")
	}
	b.do(p, pipe)
	close(release)
	ended := make(chan error, 1)
	go func() { ended <- p.Wait() }()
	select {
	case err := <-ended:
		t.Log("ended:", err)
	case <-time.After(time.Minute):
		_ = p.Process.Kill()
		t.Error("it does not end: ", <-ended)
	}
	hangUp()
	j.heal()
	if pv := j.volume(); pv == nil || pv.Status.Phase != "Bound" {
		t.Errorf("the claim is without its volume: %v", pv)
	}
	j.safe()
}

// prepare comes to where a command can be given.
func (j *journey) prepare(command string) {
	j.t.Helper()
	switch command {
	case "rollback":
		j.wants(j.t.Context(), "apply")
	case "resume":
		j.stopBefore("create persistentvolumes")
	}
}

// start starts a program as operators do, with standard error in a pipe.
func (j *journey) start(program, command, kubeconfig string) (*exec.Cmd, *os.File) {
	j.t.Helper()
	config := filepath.Join(j.t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(j.config), 0o600); err != nil {
		j.t.Fatal(err)
	}
	// The journal of a program says of which cluster it is.
	args := []string{"migrate", command, "pv1", "--kubeconfig", kubeconfig, "--journal", j.t.TempDir(), "--config", config}
	args = append(args, map[string][]string{"apply": {"--yes", "--accept", "reclaim-policy"}, "rollback": {"--yes"}}[command]...)
	p := exec.CommandContext(j.t.Context(), program, args...)
	pipe, write, err := os.Pipe()
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { pipe.Close() })
	p.Stdout, p.Stderr = write, write
	if err := p.Start(); err != nil {
		j.t.Fatal(err)
	}
	write.Close()
	return p, pipe
}
