package contract

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// installer runs the driver's own install or uninstall on this node.
func (n *node) installer(args ...string) {
	n.t.Helper()
	args = append(args, "--driver", driverName, "--volume-plugin-dir", n.pluginDir)
	cmd := exec.Command(os.Getenv(envBinary), args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("flexdriver %q: %v\n%s", args, err, out)
	}
}

// registered reports whether the kubelet knows the driver. Asking makes the
// kubelet execute init where it has seen a change, as any volume operation does.
func (n *node) registered() bool {
	_, err := n.mgr.FindPluginByName(driverName)
	return err == nil
}

// settle lets the kubelet see what has changed on the disk and returns how
// often it has executed init when no more comes of it.
func (n *node) settle() int {
	n.t.Helper()
	count, since := len(n.runner.made("init")), time.Now()
	for time.Since(since) < 400*time.Millisecond {
		n.registered()
		if now := len(n.runner.made("init")); now != count {
			count, since = now, time.Now()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return count
}

// TestInstallerUnderAKubelet: what the prober makes of each step. No failed
// execution (it would log arguments, and here checkCalls would see it), no
// event for ever in its queue, and one init for what changed once.
func TestInstallerUnderAKubelet(t *testing.T) {
	n := emptyNode(t)
	n.start()
	if n.registered() {
		t.Fatal("registered before it is installed")
	}
	n.installer("install")
	eventually(t, "registered", n.registered)
	first := n.settle()
	if first != 1 {
		t.Errorf("install: %d executions of init, want 1", first)
	}
	n.installer("install") // an update to the same version
	if got := n.settle() - first; got > 1 {
		t.Errorf("update: %d more executions of init, want at most 1", got)
	}
	before := n.settle()
	n.installer("install", "--attach") // a change of the configuration
	eventually(t, "attach:true is in force", func() bool {
		return n.registered() && n.runner.last(t, "init").answer(t).Capabilities["attach"]
	})
	if got := n.settle() - before; got > 2 {
		t.Errorf("change: %d more executions of init", got)
	}
	before = n.settle()
	dotFile := filepath.Join(filepath.Dir(n.executable()), ".log")
	n.must(os.WriteFile(dotFile, []byte("x"), 0o600))
	n.must(os.Remove(dotFile))
	if got := n.settle(); got != before {
		t.Error("a dot-file made the kubelet execute init, so this contract has changed")
	}
	n.installer("uninstall")
	eventually(t, "no longer registered", func() bool { return !n.registered() })
	before = len(n.runner.made())
	n.settle()
	if got := len(n.runner.made()); got != before {
		t.Errorf("the kubelet executed a driver that is gone %d times", got-before)
	}
	if events, err := n.prober.Probe(); err != nil || len(events) != 0 {
		t.Errorf("left in the prober's queue: %v, %v", events, err)
	}
	if entries, err := os.ReadDir(n.pluginDir); err != nil || len(entries) != 0 {
		t.Errorf("left in the plugin directory: %v, %v", entries, err)
	}
	n.installer("install") // and once more
	eventually(t, "registered again", n.registered)
}

// TestDriverInstalledBeforeTheKubeletStarts is found by its first look.
func TestDriverInstalledBeforeTheKubeletStarts(t *testing.T) {
	n := emptyNode(t)
	n.installer("install", "--directory-root", n.shared())
	n.start()
	if !n.registered() {
		t.Fatal("not registered")
	}
	v, pod := n.newVolume(directory(), "pv-1"), newPod("a")
	n.must(n.mount(v, pod))
	n.takeDown(v, pod)
}

// TestUpdatesUnderLoadFailNoCall replaces the executable again and again while
// the kubelet calls it. Each call that cannot start logs its arguments.
func TestUpdatesUnderLoadFailNoCall(t *testing.T) {
	n := emptyNode(t)
	n.installer("install", "--directory-root", n.shared())
	n.start()
	v := n.newVolume(directory(), "pv-1")
	var done atomic.Bool
	finished := make(chan struct{})
	for i := range 2 {
		go func() {
			defer func() { finished <- struct{}{} }()
			pod := newPod(string(rune('a' + i)))
			for !done.Load() && !t.Failed() {
				n.onePodLife(v, pod)
			}
		}()
	}
	const updates = 30
	for range updates {
		n.installer("install", "--directory-root", n.shared())
	}
	done.Store(true)
	<-finished
	<-finished
	calls := n.runner.made()
	for _, c := range calls {
		if a, err := parseAnswer(c.output); c.err != nil || err != nil || a.Status == "Failure" {
			t.Errorf("%s: %v, %q", c.command(), c.err, bytes.TrimSpace([]byte(c.output)))
		}
	}
	t.Logf("%d calls during %d updates", len(calls), updates)
	if len(calls) < 2*updates {
		t.Errorf("only %d calls during %d updates: the test has lost its grip", len(calls), updates)
	}
}
