package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// forgetCSI has the kubelet forget what its CSI plugin had for a pod, and leave the
// directory, written that long ago.
func (n *node) forgetCSI(dir string, ago time.Duration) {
	n.t.Helper()
	n.mounts.set(filepath.Join(dir, "mount"), false)
	then := time.Now().Add(-ago)
	if err := os.Chtimes(filepath.Join(dir, "vol_data.json"), then, then); err != nil {
		n.t.Fatal(err)
	}
}

// TestOrphanedCSIDirectory: a kubelet that was restarted leaves the directory of a
// pod that is gone, with the file of its CSI plugin (longhorn/longhorn#3207).
// It pinned the volume for ever: the bridge neither unstaged nor detached it.
func TestOrphanedCSIDirectory(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.forgetCSI(n.kubeletMounts("old", "pv1"), time.Hour)
	n.driver.called()
	n.succeed("unmount", n.podDir("p1"))
	n.expect("only a file is left", "NodeUnpublish NodeUnstage ControllerUnpublish")
	n.empty()
}

// TestYoungCSIDirectory: the plugin writes its file before it calls
// NodePublishVolume, which may take long. It has the volume all that time.
func TestYoungCSIDirectory(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.takeOver()
	n.forgetCSI(n.kubeletMounts("p2", "pv1"), time.Second)
	n.driver.called()
	n.succeed("unmount", n.podDir("p1"))
	n.expect("it is about to be published", "NodeUnpublish")
}

// TestUnseenCSIDirectory: what cannot be looked at may be a mount.
func TestUnseenCSIDirectory(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.takeOver()
	dir := n.kubeletMounts("p2", "pv1")
	n.forgetCSI(dir, time.Hour)
	n.mounts.fail["Mounted "+filepath.Join(dir, "mount")] = errors.New("no answer")
	n.driver.called()
	n.succeed("unmount", n.podDir("p1"))
	n.expect("it may be published", "NodeUnpublish")
}

// TestOrphanIsSwept: an attachment that no record knows of stayed for the sake of
// such a directory.
func TestOrphanIsSwept(t *testing.T) {
	n := newClusterNode(t)
	n.orphan("node-1", flexDriver)
	n.forgetCSI(n.kubeletMounts("old", "pv1"), time.Hour)
	n.sweep()
	if got := n.cluster.called(); got != "Detach" {
		t.Errorf("called %q", got)
	}
}
