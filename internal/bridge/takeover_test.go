package bridge_test

import (
	"os"
	"path/filepath"
	"testing"
)

// kubeletMounts has the kubelet's CSI plugin mount the volume for a pod: its
// directory with the file, and the mount.
func (n *node) kubeletMounts(pod, persistentVolume string) (dir string) {
	n.t.Helper()
	dir = filepath.Join(n.dir, "pods", pod, "volumes/kubernetes.io~csi", persistentVolume)
	if err := os.MkdirAll(filepath.Join(dir, "mount"), 0o750); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "vol_data.json"), []byte(`{"driverName":"csi.example.com","volumeHandle":"h1"}`), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.mounts.set(filepath.Join(dir, "mount"), true)
	return dir
}

// TestKubeletHas: a pod has been taken over when the kubelet's CSI plugin has
// mounted the volume for it, and not for another, and not when it only began.
func TestKubeletHas(t *testing.T) {
	n := newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeed("mount", n.podDir("p2"), options)
	r := n.bridge.Records()[0]
	says := func(when string, want map[string]bool) {
		t.Helper()
		for pod, want := range want {
			if got := n.bridge.KubeletHas(r, pod); got != want {
				t.Errorf("%s: the kubelet has it for %q: %t", when, pod, got)
			}
		}
	}
	says("mounted here", map[string]bool{"": false, "p1": false, "p2": false})
	n.takeOver()
	says("staged", map[string]bool{"": true, "p1": false, "p2": false})
	mount := filepath.Join(n.kubeletMounts("p2", "pv1"), "mount")
	says("published", map[string]bool{"": true, "p1": false, "p2": true})
	n.mounts.set(mount, false)
	says("not published yet", map[string]bool{"": true, "p1": false, "p2": false})
}
