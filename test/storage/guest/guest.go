// Package guest runs a test on a kernel of its own, with servers and clients of real storage.
//
// The kernel is user-mode Linux, which is an ordinary process: it has the modules of NFS, SMB,
// iSCSI, Ceph and the device mapper that the machine's own kernel may lack, a test may stop its
// servers and its network, and it may be killed as if the power went. What is in its root file
// system hack/storage-root says.
package guest

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	// envInside says that this process is in a guest.
	envInside = "FLEX_GUEST"
	// envRoot names the guests' root file system, as hack/storage-root has made it.
	envRoot = "FLEX_STORAGE_ROOT"
	// envLong asks for the tests that last longer than all the others.
	envLong = "FLEX_STORAGE_LONG"
	kernel  = "linux.uml"
	// Host is where a guest sees the machine's files, read-only.
	Host = "/host"
)

//go:embed first.sh
var first []byte

//go:embed second.sh
var second []byte

// Run runs the test that calls it in a guest: there test is called, here its results are told. A
// guest has one processor and 1 GiB of memory.
func Run(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(envInside) != "" {
		test(t)
		return
	}
	root, dir := place(t)
	console := boot(t, root, dir)
	output, err := os.ReadFile(filepath.Join(dir, "output"))
	if err != nil {
		t.Fatalf("the guest has run no test: %v\n%s", err, console)
	}
	tell(t, string(output))
	if status, err := os.ReadFile(filepath.Join(dir, "status")); err != nil {
		t.Errorf("the guest has not ended: %v\n%s\n%s", err, output, console)
	} else if string(status) != "0\n" {
		t.Errorf("the test in the guest ended with %s%s\n%s", status, output, console)
	}
}

// place returns the root of a guest, and a folder for it that says what it runs.
func place(t *testing.T) (root, dir string) {
	t.Helper()
	t.Parallel()
	testenv.Need(t, "root", "prog:"+kernel)
	if root = os.Getenv(envRoot); root == "" {
		t.Skipf("%s does not name a root file system (make test-storage makes it)", envRoot)
	}
	dir = t.TempDir()
	if err := prepare(dir, t.Name()); err != nil {
		t.Fatal(err)
	}
	return root, dir
}

// Need skips the test that calls it unless the guests' root file system has a program.
func Need(t *testing.T, program string) {
	t.Helper()
	root := os.Getenv(envRoot)
	if os.Getenv(envInside) != "" || root == "" {
		return // Run says that there is none
	}
	if _, err := os.Stat(filepath.Join(root, "usr/bin", program)); err != nil {
		t.Skipf("the root file system has no %s (hack/storage-root full makes one that has): %v", program, err)
	}
}

// RunLong is Run for a test of many minutes, which is skipped unless FLEX_STORAGE_LONG is set.
func RunLong(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if os.Getenv(envInside) == "" && os.Getenv(envLong) == "" {
		t.Skipf("%s is not set: this takes many minutes", envLong)
	}
	Run(t, test)
}

// prepare writes what the guest runs: this program, with the test alone.
func prepare(dir, test string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	var pattern strings.Builder
	pattern.WriteString("^" + test + "$")
	for _, arg := range os.Args {
		if all, is := strings.CutPrefix(arg, "-test.run="); is {
			if _, sub, is := strings.Cut(all, "/"); is {
				pattern.WriteString("/" + sub)
			}
		}
	}
	var run strings.Builder
	for _, name := range []string{"FLEXDRIVER_BINARY", "FLEX2CSI_BINARY", "FLEX_PROGRAMS", "DRIVERS"} {
		if path := os.Getenv(name); path != "" {
			fmt.Fprintf(&run, "export %s='%s%s'\n", name, Host, path)
		}
	}
	fmt.Fprintf(&run, "export %s=1\ncd '%s%s'\nexec '%s%s' -test.v -test.timeout=1h -test.parallel=16 -test.run='%s'\n", envInside, Host, here, Host, program, pattern.String())
	for name, text := range map[string][]byte{"first.sh": first, "second.sh": second, "run.sh": []byte(run.String())} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// boot runs a guest until it ends, and returns what its kernel said.
func boot(t *testing.T, root, dir string) string {
	t.Helper()
	ctx := t.Context()
	if deadline, is := t.Deadline(); is {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-10*time.Second))
		defer cancel()
	}
	var console bytes.Buffer
	cmd := command(ctx, root, dir)
	cmd.Stdout, cmd.Stderr = &console, &console
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		t.Errorf("the guest was ended: %v", context.Cause(ctx))
	}
	return console.String()
}

// command is a guest with more arguments for its kernel. It ends with the context.
func command(ctx context.Context, root, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, kernel, append([]string{
		"mem=1G", "root=/dev/root", "rootfstype=hostfs", "rootflags=" + root, "ro", "init=/sbin/guest",
		"con=null", "con0=null,fd:1", "quiet", "loglevel=4", "uml_dir=" + dir, "guest=" + dir,
	}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR=/dev/shm", "LD_PRELOAD="+filepath.Join(root, "usr/lib/xstate.so"))
	// Its helpers are processes as well, and end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // none of them writes to a disk when the next guest has it
	return cmd
}

// ended matches the line of a test that has ended.
var ended = regexp.MustCompile(`(?m)^    --- (PASS|FAIL|SKIP): [^/\s]+/(\S+) \((\S+)s\)$`)

// tell makes what ran in the guest tests of this run.
func tell(t *testing.T, output string) {
	t.Helper()
	for _, line := range ended.FindAllStringSubmatch(output, -1) {
		t.Run(line[2], func(t *testing.T) {
			seconds, _ := strconv.ParseFloat(line[3], 64) // for people
			t.Logf("%.1f s in the guest", seconds)
			switch line[1] {
			case "FAIL":
				t.Fail()
			case "SKIP":
				t.Skip("skipped in the guest")
			}
		})
	}
}
