package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// A scriptBridge is flex2csi and a CSI driver on the node of one script.
type scriptBridge struct {
	work        string
	csi, daemon *exec.Cmd
}

// scriptBridgeKey finds the one of a script.
type scriptBridgeKey struct{}

const scriptBridgeUsage = "usage: bridge up [attach] | kill | start | stop | hang | hangs | unhang | marker"

// scriptBridgeCmd runs flex2csi. "up" starts a CSI driver with the volume disk-1, and
// the daemon, and makes the installed driver one that calls it.
func scriptBridgeCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf(scriptBridgeUsage)
	}
	b, _ := ts.Value(scriptBridgeKey{}).(*scriptBridge)
	switch args[0] {
	case "up":
		ts.Check(b.up(ts, len(args) > 1 && args[1] == "attach"))
	case "start":
		ts.Check(b.serve(ts))
	case "kill":
		ts.Check(end(b.daemon, syscall.SIGKILL))
	case "hang":
		ts.Check(fault.WriteFile(ts.MkAbs("faults"), fault.Rule{Method: "NodePublishVolume", Hang: true, Times: 1}))
	case "unhang":
		ts.Check(fault.WriteFile(ts.MkAbs("faults")))
	case "hangs":
		ts.Check(b.hangs(ts))
	case "marker":
		m := &nodemounts.Mounts{KubeletDir: ts.Getenv("KUBELET")}
		ts.Check(m.Marker(context.Background(), ts.Getenv("GLOBAL")))
	case "stop":
		ts.Check(end(b.daemon, syscall.SIGTERM))
	default:
		ts.Fatalf(scriptBridgeUsage)
	}
}

func (b *scriptBridge) up(ts *testscript.TestScript, attach bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	csi := ts.MkAbs("csi/csi.sock")
	files := map[string]string{
		ts.MkAbs("bridge.yaml"): `apiVersion: flex2csi.io/v1alpha1
kind: BridgeConfiguration
drivers:
- flexDriver: example.com/disk
  csiDriver: loop.csi.example.com
  endpoint: unix://` + csi + `
  controllerEndpoint: unix://` + csi + "\n",
		filepath.Join(ts.Getenv("DRIVER"), ".flexdriver.json"): fmt.Sprintf(`{
  "apiVersion": "flex2csi.io/v1alpha1",
  "kind": "FlexDriverConfiguration",
  "backend": "csi",
  "driver": "example.com/disk",
  "capabilities": {"attach": %t},
  "socket": %q,
  "stateDir": %q
}
`, attach, ts.Getenv("SOCKET"), ts.Getenv("STATE")),
	}
	for file, text := range files {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	b.csi = b.start(csiDriver, self, "--dir", ts.MkAbs("csi"), "--volume", "disk-1=128Mi",
		"--faults", ts.MkAbs("faults"), "--call-log", ts.MkAbs("calls"), fmt.Sprintf("--attach=%t", attach))
	if err := b.csi.Start(); err != nil {
		return err
	}
	if err := b.appear(csi); err != nil {
		return err
	}
	return b.serve(ts)
}

// hangs returns when the CSI driver hangs.
func (b *scriptBridge) hangs(ts *testscript.TestScript) error {
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(5 * time.Millisecond) {
		list, err := calls.Read(ts.MkAbs("calls"))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(c calls.Call) bool { return c.Method == "NodePublishVolume" && !c.Ended() }) {
			return nil
		}
	}
	return errors.New("the CSI driver does not hang")
}

// serve starts the daemon, and returns when it can be called.
func (b *scriptBridge) serve(ts *testscript.TestScript) error {
	// No process listens at the socket of the last daemon.
	_ = os.Remove(ts.Getenv("SOCKET"))
	binary := os.Getenv(envDaemon)
	b.daemon = b.start(binary, binary, "serve", "-v", "--config", ts.MkAbs("bridge.yaml"), "--socket", ts.Getenv("SOCKET"),
		"--state-dir", ts.Getenv("STATE"), "--kubelet-dir", ts.Getenv("KUBELET"), "--node-name", "node")
	if err := b.daemon.Start(); err != nil {
		return err
	}
	return b.appear(ts.Getenv("SOCKET"))
}

// start starts a process with its output in $WORK/<name>.log.
func (b *scriptBridge) start(name, binary string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = name
	log, err := os.OpenFile(filepath.Join(b.work, filepath.Base(name)+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		cmd.Stdout, cmd.Stderr = log, log
	}
	// The process ends with the test, whatever way that ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// appear waits for a file. No machine is so busy that it takes a minute.
func (b *scriptBridge) appear(path string) error {
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return nil
		}
	}
	var said []byte
	for _, name := range []string{csiDriver, "flex2csi"} {
		log, _ := os.ReadFile(filepath.Join(b.work, name+".log"))
		said = append(said, log...)
	}
	return fmt.Errorf("%s has not appeared; what was said:\n%s", path, said)
}

// end ends a process unless it has ended.
func end(cmd *exec.Cmd, signal syscall.Signal) error {
	if cmd == nil || cmd.ProcessState != nil {
		return nil
	}
	if err := cmd.Process.Signal(signal); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil && signal != syscall.SIGKILL && !strings.Contains(err.Error(), "signal") {
		return fmt.Errorf("%s: %w", cmd.Args[0], err)
	}
	return nil
}

// setUpBridge prepares what bridge needs; nothing is started.
func setUpBridge(e *testscript.Env) {
	b := &scriptBridge{work: e.WorkDir}
	e.Values[scriptBridgeKey{}] = b
	e.Setenv("SOCKET", filepath.Join(e.WorkDir, "run/s"))
	e.Setenv("STATE", filepath.Join(e.WorkDir, "state"))
	e.Defer(func() {
		_ = end(b.daemon, syscall.SIGKILL)
		_ = end(b.csi, syscall.SIGKILL)
	})
}

// scriptPendingUnmounts counts the pending unmounts on the node, now or in a moment.
func scriptPendingUnmounts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pending-unmounts COUNT")
	}
	var found []string
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(5 * time.Millisecond) {
		found, _ = filepath.Glob(filepath.Join(ts.Getenv("STATE"), "*.tombstone"))
		if fmt.Sprint(len(found)) == args[0] {
			return
		}
	}
	ts.Fatalf("there are %d pending unmounts, not %s", len(found), args[0])
}

// scriptAwait waits for a text in a file that a process writes.
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE TEXT")
	}
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(ts.MkAbs(args[0])); err == nil && strings.Contains(string(text), args[1]) {
			return
		}
	}
	ts.Fatalf("%s does not come to have %q in it", args[0], args[1])
}
