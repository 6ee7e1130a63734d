package contract

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scriptedNode is a node with a shell script for a driver.
func scriptedNode(t *testing.T, script string) *node {
	t.Helper()
	n := emptyNode(t)
	n.must(os.MkdirAll(filepath.Dir(n.executable()), 0o755))
	n.must(os.WriteFile(n.executable(), []byte("#!/bin/sh\n"+script), 0o755))
	return n
}

// kubeletProcess runs a helper process, in a process group of its own, which is
// killed in the end: a driver that ignores SIGTERM outlives its kubelet.
func kubeletProcess(t *testing.T, role, pluginDir string) (output string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(self(), pluginDir)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // for the driver, which has our end of the pipe
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // nothing left is what we want
	return out.String(), err
}

// TestKubeletSurvivesWaitForAttachTimeout: after the timeout the kubelet sends
// SIGTERM, and 10 s later it dereferences nil if the driver still runs. The
// second case shows that the first one would notice.
func TestKubeletSurvivesWaitForAttachTimeout(t *testing.T) {
	ours := emptyNode(t)
	ours.installByHand(true)
	deaf := scriptedNode(t, `case $1 in
init) echo '{"status":"Success","capabilities":{"attach":true}}' ;;
*) trap '' TERM; sleep 20; echo '{"status":"Success"}' ;;
esac
`)
	t.Run("with flexdriver", func(t *testing.T) {
		t.Parallel()
		out, err := kubeletProcess(t, "waitforattach", ours.pluginDir)
		if err != nil || !strings.Contains(out, "the kubelet lives") {
			t.Errorf("the kubelet ended with %v:\n%s", err, out)
		}
		if !strings.Contains(out, "after 1") || !strings.Contains(out, "interrupted") {
			t.Errorf("want a Failure that says so, before 2 s are over:\n%s", out)
		}
	})
	t.Run("not with a driver deaf to SIGTERM", func(t *testing.T) {
		t.Parallel()
		out, err := kubeletProcess(t, "waitforattach", deaf.pluginDir)
		if err == nil || !strings.Contains(out, "nil pointer dereference") {
			t.Errorf("the kubelet did not crash (%v), so this contract has changed:\n%s", err, out)
		}
	})
}

// TestKubeletDiesOfNullCapabilities shows why init names them all.
func TestKubeletDiesOfNullCapabilities(t *testing.T) {
	n := scriptedNode(t, `echo '{"status":"Success","capabilities":null}'`)
	out, err := kubeletProcess(t, "probe", n.pluginDir)
	if err == nil || !strings.Contains(out, "nil pointer dereference") {
		t.Errorf("the kubelet did not crash (%v), so this contract has changed:\n%s", err, out)
	}
}

// TestWaitForAttachAnswersFailureToSIGTERM with exit status 0, so that the pod's
// event has our text; after another status it would only say "timeout".
func TestWaitForAttachAnswersFailureToSIGTERM(t *testing.T) {
	n := newNode(t, true)
	v := n.newVolume(directory(), "pv-1")
	v.pv.Spec.FlexVolume.Options = map[string]string{"device": absentDevice}
	v.pv.Spec.FlexVolume.FSType = "ext4"
	_, err := n.attacher().WaitForAttach(v.spec, "", newPod("a"), time.Second)
	if err == nil || !strings.Contains(err.Error(), absentDevice) {
		t.Errorf("waitforattach returned %v, want our words about %s", err, absentDevice)
	}
	c := n.runner.last(t, "waitforattach")
	if a := c.answer(t); a.Status != "Failure" {
		t.Errorf("answered %q to SIGTERM, want a Failure", c.output)
	}
	if took := c.end.Sub(c.start); took < 900*time.Millisecond || took > 2*time.Second {
		t.Errorf("ended after %v, want within a second of the SIGTERM at 1 s", took)
	}
}
