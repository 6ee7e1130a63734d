package doctor_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envRole makes the test binary one of the processes of a node.
const envRole = "DOCTOR_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "kubelet", "kube-controller-manager": // which is there, and that is all
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "csidriver":
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	case "ask-mounts":
		if err := doctor.AnswerMounts(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

// A node is what the tests look at: directories that are really there, and
// processes.
type node struct {
	*testenv.KubeletDir
	t   *testing.T
	dir string // short: the path of a socket has at most 107 bytes
	o   doctor.Options
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "doc") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &node{KubeletDir: testenv.Kubelet(t), t: t, dir: dir}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.o = doctor.Options{
		Local: true, KubeletDir: n.Root, PluginDir: n.PluginDir, Timeout: 5 * time.Second, NoCluster: "none in this test",
		Config: n.path("config.yaml"), Socket: n.path("run/s"), StateDir: n.path("state"),
		AskMounts: []string{"/usr/bin/env", envRole + "=ask-mounts", self},
		// One that never is: other tests of this machine may have a kubelet.
		KubeletPID: 1 << 22,
	}
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

func (n *node) write(path, content string, mode os.FileMode) string {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		n.t.Fatal(err)
	}
	return path
}

// configure writes a configuration with one driver.
func (n *node) configure(more ...string) {
	n.t.Helper()
	n.configureDriver(csiName, more...)
}

func (n *node) configureDriver(name string, more ...string) {
	n.t.Helper()
	n.write(n.o.Config, `apiVersion: flex2csi.io/v1alpha1
kind: BridgeConfiguration
drivers:
- flexDriver: example.com/disk
  csiDriver: `+name+`
  pvNamePattern: ".*"
  `+strings.Join(more, "\n  "), 0o600)
}

const csiName = "loop.csi.example.com"

// start starts the test binary in a role, until the test ends.
func (n *node) start(role string, attr *syscall.SysProcAttr, args ...string) *exec.Cmd {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{role}, args...)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return cmd
}

// kubelet starts one with these arguments.
func (n *node) kubelet(args ...string) {
	n.t.Helper()
	n.o.KubeletPID = n.start("kubelet", nil, args...).Process.Pid
	// A process is told to have started a moment before the kernel knows its
	// arguments (fs/binfmt_elf.c: begin_new_exec is before create_elf_tables).
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", n.o.KubeletPID))
		if err != nil || time.Now().After(deadline) {
			n.t.Fatalf("the kubelet has no arguments: %v", err)
		}
		if len(line) > 0 {
			return
		}
	}
}

func (n *node) run() *doctor.Report {
	n.t.Helper()
	return doctor.Run(n.t.Context(), n.o)
}

// found are the findings of a kind.
func found(r *doctor.Report, id doctor.ID) (all []doctor.Finding) {
	for _, f := range r.Findings {
		if f.ID == id {
			all = append(all, f)
		}
	}
	return all
}

// want has exactly these findings that are no good news, as "id subject".
func want(t *testing.T, r *doctor.Report, prefix string, wanted ...string) {
	t.Helper()
	got := []string{}
	for _, f := range r.Findings {
		if f.Severity != doctor.OK {
			got = append(got, string(f.ID)+" "+strings.TrimPrefix(f.Subject, prefix))
		}
	}
	slices.Sort(got)
	slices.Sort(wanted)
	if !slices.Equal(got, wanted) {
		t.Errorf("found\n  %s\nwant\n  %s\n%s", strings.Join(got, "\n  "), strings.Join(wanted, "\n  "), text(t, r))
	}
}

func text(t *testing.T, r *doctor.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Show(report.Table).Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func wantText(t *testing.T, r *doctor.Report, texts ...string) {
	t.Helper()
	all := strings.ReplaceAll(strings.Join(strings.Fields(text(t, r)), " "), "| ", "") // without line breaks
	for _, want := range texts {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, text(t, r))
		}
	}
}
