package kubelet_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envRole makes the test binary another process.
const envRole = "KUBELET_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "kubelet": // which is there, and that is all
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case "machine":
		if err := machine(os.Args[1:]); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

// machine is the first process of one: it starts kubelets, one for each
// argument, and says which one is found.
func machine(kinds []string) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	for _, kind := range kinds {
		attr := &syscall.SysProcAttr{}
		if kind == "inside" {
			attr.Cloneflags = unix.CLONE_NEWPID
		}
		if err := start(kind, attr); err != nil {
			return err
		}
	}
	k, err := kubelet.Find(kubelet.Host{}, 0)
	if err == nil {
		fmt.Println("found", k.RootDir)
	}
	return err
}

func start(kind string, attr *syscall.SysProcAttr) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"/usr/bin/kubelet", "--root-dir=/" + kind}
	cmd.Env = append(os.Environ(), envRole+"=kubelet")
	cmd.SysProcAttr = attr
	if _, err := cmd.StdinPipe(); err != nil { // which ends with us, as all do
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = io.ReadFull(out, make([]byte, len("ready")))
	}
	return err
}

// TestFind: the one kubelet of a machine, whatever runs in its containers.
func TestFind(t *testing.T) {
	testenv.Need(t, "mount")
	for kinds, want := range map[string]string{
		"":                     kubelet.ErrNone.Error(),
		"inside":               kubelet.ErrNone.Error(),
		"own":                  "found /own",
		"inside own inside":    "found /own",
		"own another":          kubelet.ErrMany.Error(),
		"own inside another x": kubelet.ErrMany.Error(),
	} {
		cmd := exec.Command("/proc/self/exe", strings.Fields(kinds)...)
		cmd.Env = append(os.Environ(), envRole+"=machine")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(out), want) {
			t.Errorf("with %q: %s, want %s", kinds, out, want)
		}
	}
}
