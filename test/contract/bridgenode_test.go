package contract

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// bridgeDir is where the daemon and the CSI driver have what is theirs.
func (n *node) bridgeDir() string { return filepath.Join(n.work, "bridge") }

func (n *node) disks() string        { return filepath.Join(n.bridgeDir(), "disks") }
func (n *node) csiSocket() string    { return filepath.Join(n.bridgeDir(), "csi.sock") }
func (n *node) daemonSocket() string { return filepath.Join(n.bridgeDir(), "run/flex2csi.sock") }
func (n *node) stateDir() string     { return filepath.Join(n.bridgeDir(), "state") }

// overBridge is an edit of flexdriver's configuration.
func (n *node) overBridge(c *driverConfig) {
	c.Backend, c.Socket, c.StateDir = "csi", n.daemonSocket(), n.stateDir()
	c.DirectoryRoots, c.ImageRoots, c.DeviceRoots, c.SourceTypes = nil, nil, nil, nil
}

// startCSIDriver starts the driver and waits until it listens.
func (n *node) startCSIDriver() {
	n.t.Helper()
	n.must(os.MkdirAll(n.bridgeDir(), 0o700))
	args := append(n.csi.args(n), "--endpoint", n.csiSocket(), "--call-log", filepath.Join(n.bridgeDir(), "calls"), "--faults", n.faultFile())
	n.csiProcess = n.startProgram(n.csi.program, n.csiSocket(), args...)
}

// startDaemon starts flex2csi for the node's CSI driver.
func (n *node) startDaemon() {
	n.t.Helper()
	lines := append([]string{
		"apiVersion: flex2csi.io/v1alpha1", "kind: BridgeConfiguration", "drivers:",
		"- flexDriver: " + driverName, "  csiDriver: " + n.csi.name,
		"  controllerEndpoint: unix://" + n.csiSocket(),
	}, n.csi.config...)
	if !n.csi.registers {
		lines = append(lines, "  endpoint: unix://"+n.csiSocket())
	}
	config := filepath.Join(n.bridgeDir(), "config.yaml")
	n.must(os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	n.daemon = n.startProgram("flex2csi", n.daemonSocket(), "serve", "--config", config, "--socket", n.daemonSocket(),
		"--state-dir", n.stateDir(), "--kubelet-dir", n.root, "--node-name", string(nodeName))
}

// startProgram starts one of the project's programs. It has ended before the
// node is checked for leaks.
func (n *node) startProgram(program, socket string, args ...string) *exec.Cmd {
	n.t.Helper()
	// One that was killed has left it.
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(n.bridgeDir(), program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.must(err)
	defer log.Close()
	cmd := exec.Command(n.binary(program), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	n.must(cmd.Start())
	n.t.Cleanup(func() {
		n.stopProgram(cmd, unix.SIGTERM)
		if said, err := os.ReadFile(log.Name()); n.t.Failed() && err == nil {
			n.t.Logf("end of what %s said:\n%s", program, said[max(0, len(said)-6000):])
		}
	})
	eventually(n.t, program+" listens", func() bool { return exists(socket) })
	return cmd
}

// stopProgram ends a program; one that has ended stays so.
func (n *node) stopProgram(cmd *exec.Cmd, signal unix.Signal) {
	_ = cmd.Process.Signal(signal)
	_ = cmd.Wait()
}

// binary returns the path of a program of the project, and builds it if necessary.
func (n *node) binary(program string) string {
	n.t.Helper()
	path := filepath.Join(os.Getenv(envPrograms), program)
	if exists(path) {
		return path
	}
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".")
	build.Dir = filepath.Join("..", "..", map[string]string{
		"flex2csi": "cmd/flex2csi", "csidriver": "test/csidriver/cmd/csidriver", "fusedriver": "test/fusedriver/cmd/fusedriver", "gcepd": "test/gcepd", "mock": "test/mock",
	}[program])
	build.Env = buildEnv()
	if out, err := build.CombinedOutput(); err != nil {
		n.t.Fatalf("build %s: %v\n%s", program, err, out)
	}
	return path
}

func (n *node) faultFile() string { return filepath.Join(n.bridgeDir(), "faults") }

// faults has the CSI driver follow rules (test/csidriver/fault), each a JSON
// object; none ends it.
func (n *node) faults(rules ...string) {
	n.t.Helper()
	if err := os.Remove(n.faultFile() + ".used"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	n.must(os.WriteFile(n.faultFile()+".new", fmt.Appendf(nil, "[%s]", strings.Join(rules, ",")), 0o600))
	n.must(os.Rename(n.faultFile()+".new", n.faultFile()))
}
