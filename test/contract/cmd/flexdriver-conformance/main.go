// Command flexdriver-conformance runs a FlexVolume driver, of any make, as Kubernetes does,
// and reports what the kubelet would stumble over. Kubernetes' own FlexVolume code calls the
// driver, as root, in a private mount namespace.
//
//	flexdriver-conformance [--volume FILE] PATH
//
// Each check is "ok", "not ok" with a reason, or "not tried" with a reason. The exit status is
// 1 if something is not ok, and 2 if nothing could be checked.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// insideEnv marks the process in the private mount namespace.
const insideEnv = "FLEXDRIVER_CONFORMANCE_INSIDE"

const (
	exitNotOK = 1
	exitUsage = 2
)

func main() {
	if os.Getenv(insideEnv) == "" {
		os.Exit(isolated())
	}
	status, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flexdriver-conformance:", err)
	}
	os.Exit(status)
}

// isolated runs this program again in a mount namespace of its own, so that nothing that a
// driver mounts can stay. It does not unshare in this process: that changes one thread, and
// the Go runtime starts programs from any of them.
func isolated() int {
	runtime.LockOSThread() // Pdeathsig follows the thread that forked
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// With Unshareflags package syscall also makes every mount private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Unshareflags: unix.CLONE_NEWNS}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		fmt.Fprintf(os.Stderr, "flexdriver-conformance: make a private mount namespace: %v; run it as root\n", err)
		return exitUsage
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return exitUsage
}

// volumeFile describes a volume that exists.
type volumeFile struct {
	Options map[string]string `json:"options"`
	Secrets map[string]string `json:"secrets"` // in plain
	FSType  string            `json:"fsType"`
}

func run(args []string, out io.Writer) (int, error) {
	set := flag.NewFlagSet("flexdriver-conformance", flag.ContinueOnError)
	set.SetOutput(os.Stderr)
	set.Usage = func() {
		fmt.Fprint(os.Stderr, "Usage: flexdriver-conformance [flags] PATH\n\nRun the FlexVolume driver PATH as Kubernetes does, and check it. The checks write to the volume.\n\n")
		set.PrintDefaults()
	}
	file := set.String("volume", "", "`file` with a volume that may be written to: a JSON object with options, secrets (in plain) and fsType. Without it no volume is mounted")
	deadline := set.Duration("deadline", 2*time.Minute, "longest time for a call; the driver is killed then")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return exitUsage, nil // the flag set has printed it
	case set.NArg() != 1:
		return exitUsage, errors.New("which driver? give one PATH")
	}
	volume, err := readVolume(*file)
	if err != nil {
		return exitUsage, err
	}
	n, err := newNode(set.Arg(0), volume, *deadline)
	if err != nil {
		return exitUsage, err
	}
	defer n.close()
	r := &report{}
	n.checkAll(r)
	return r.print(out), nil
}

func readVolume(file string) (*volumeFile, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the volume: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	v := &volumeFile{}
	if err := decoder.Decode(v); err != nil {
		return nil, fmt.Errorf("read the volume %s: %w", filepath.Base(file), err)
	}
	return v, nil
}
