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
	"github.com/flex2csi/flex2csi/test/daemon"
)

// A scriptBridge is flex2csi and a CSI driver on the node of one script.
type scriptBridge struct {
	work        string
	csi, daemon *daemon.Process
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
		ts.Check(b.daemon.End(syscall.SIGKILL))
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
		ts.Check(b.daemon.End(syscall.SIGTERM))
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
	config := fmt.Sprintf(`{
  "apiVersion": "flex2csi.io/v1alpha1",
  "kind": "FlexDriverConfiguration",
  "backend": "csi",
  "driver": "example.com/disk",
  "capabilities": {"attach": %t},
  "socket": %q,
  "stateDir": %q
}
`, attach, ts.Getenv("SOCKET"), ts.Getenv("STATE"))
	if err := os.WriteFile(filepath.Join(ts.Getenv("DRIVER"), ".flexdriver.json"), []byte(config), 0o644); err != nil {
		return err
	}
	d := scriptDaemon(ts.Getenv("WORK"))
	d.KubeletDir = ts.Getenv("KUBELET")
	d.Drivers = []daemon.Driver{{FlexDriver: "example.com/disk", CSIDriver: "loop.csi.example.com", Endpoint: csi, ControllerEndpoint: csi}}
	if err := d.Configure(); err != nil {
		return err
	}
	b.csi, err = b.start(csiDriver, self, csi, "--dir", ts.MkAbs("csi"), "--volume", "disk-1=128Mi",
		"--faults", ts.MkAbs("faults"), "--call-log", ts.MkAbs("calls"), fmt.Sprintf("--attach=%t", attach))
	if err != nil {
		return err
	}
	return b.serve(ts)
}

// scriptDaemon is the one of a script.
func scriptDaemon(work string) *daemon.Daemon { return &daemon.Daemon{Dir: work, NodeName: "node"} }

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
func (b *scriptBridge) serve(ts *testscript.TestScript) (err error) {
	binary := os.Getenv(envDaemon)
	d := scriptDaemon(ts.Getenv("WORK"))
	d.KubeletDir = ts.Getenv("KUBELET")
	b.daemon, err = b.start(binary, binary, d.Socket(), d.Args("-v")...)
	return err
}

// start starts a process with its output in $WORK/<name>.log.
func (b *scriptBridge) start(name, binary, socket string, args ...string) (*daemon.Process, error) {
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = name
	return daemon.Start(cmd, filepath.Join(b.work, filepath.Base(name)+".log"), socket)
}

// setUpBridge prepares what bridge needs; nothing is started.
func setUpBridge(e *testscript.Env) {
	b := &scriptBridge{work: e.WorkDir}
	e.Values[scriptBridgeKey{}] = b
	d := scriptDaemon(e.WorkDir)
	e.Setenv("SOCKET", d.Socket())
	e.Setenv("STATE", d.StateDir())
	e.Defer(func() {
		_ = b.daemon.End(syscall.SIGKILL)
		_ = b.csi.End(syscall.SIGKILL)
	})
}

// scriptPendingUnmounts counts the pending unmounts on the node, now or in a moment.
func scriptPendingUnmounts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: pending-unmounts COUNT")
	}
	var found []string
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(5 * time.Millisecond) {
		found, _ = filepath.Glob(filepath.Join(ts.Getenv("STATE"), "*.pending-unmount"))
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
