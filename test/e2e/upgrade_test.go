package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// upgrades are what administrators do with flex2csi while its volumes are in use.
func upgrades() []scenario {
	return []scenario{
		{"upgrade", "another build and back, while pods come and go: no call fails", upgrade},
		{"uninstall", "refused while volumes are in use; then nothing is left; installed again under pods that wait", uninstall},
	}
}

// nextImage is the same program, built to other bytes.
const nextImage = "ghcr.io/flex2csi/flex2csi:next"

func upgrade(t *T) {
	t.disturb(func(l *load) {
		said := t.kubeletLog()
		old := t.daemonSum()
		for _, what := range []string{"daemonset/flex2csi-node", "deployment/flex2csi-controller"} {
			out, err := t.kubectl("set", "image", "--namespace", installed, what, "*="+nextImage)
			t.must(withText(err, out))
		}
		t.Cleanup(func() { t.check(t.rollBack()) }) // where it ends before that
		t.must(t.rolledOut(t.ctx(), installed))
		if t.daemonSum() == old {
			t.Fatal("the daemon is the same as before the upgrade")
		}
		l.more(2)
		t.must(t.rollBack())
		if t.daemonSum() != old {
			t.Error("after the roll back the daemon is not what it was")
		}
		l.more(1)
		for _, line := range l.failedCalls(said) {
			t.Errorf("a call failed: %s", line)
		}
	})
}

// rollBack makes flex2csi what was installed at first.
func (t *T) rollBack() error { return t.install(t.ctx()) }

// daemonSum tells builds of the daemon that runs apart.
func (t *T) daemonSum() string {
	t.Helper()
	_, pid := t.daemon()
	program, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	t.must(err)
	defer program.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, program)
	t.must(err)
	return hex.EncodeToString(sum.Sum(nil))
}

// kubeletLog is how much the kubelet has said.
func (t *T) kubeletLog() int64 {
	t.Helper()
	info, err := os.Stat(t.node.Kubelet.Log)
	t.must(err)
	return info.Size()
}

// failedCalls are what the kubelet has said since of calls for the load's volumes
// that did not succeed. It has no events for those that unmount. A pod that is
// deleted while its volume is being mounted has none to be mounted in, so that
// call may fail.
func (l *load) failedCalls(since int64) []string {
	t := l.t
	t.Helper()
	text, err := fileText(t.node.Kubelet.Log)
	t.must(err)
	var found []string
	for line := range strings.Lines(text[since:]) {
		for _, call := range []string{"SetUp failed", "MountDevice failed", "WaitForAttach failed", "TearDown failed", "UnmountDevice failed"} {
			if strings.Contains(line, call) && strings.Contains(line, t.Namespace+"-") && !l.isHasty(line) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}

// isHasty reports whether a line of the kubelet's log is about the set-up of a hasty pod.
func (l *load) isHasty(line string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, hasty := range l.hasty {
		if hasty && (strings.Contains(line, `pod "`+name+`"`) || strings.Contains(line, "/"+name+`"`)) {
			return true
		}
	}
	return false
}
