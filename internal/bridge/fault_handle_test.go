package bridge_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// as is the options of another PersistentVolume with the same handle.
func as(persistentVolume string) string {
	return strings.Replace(options, `"pv1"`, `"`+persistentVolume+`"`, 1)
}

// dirOf is the directory of a pod for a PersistentVolume.
func (n *node) dirOf(pod, persistentVolume string) string {
	return filepath.Join(filepath.Dir(n.podDir(pod)), persistentVolume)
}

// TestKubeletHasByHandle: the kubelet's CSI plugin has the volume under the name of
// its own PersistentVolume, which need not be the one that is mounted here. A
// migration waited for ever, and a pod could not end.
func TestKubeletHasByHandle(t *testing.T) {
	n := newNode(t)
	dir := n.podDir("p1")
	n.succeed("mount", dir, options)
	n.takeOver()
	n.kubeletMounts("p1", "another-name")
	if !n.bridge.KubeletHas(n.record(), "p1") || !n.bridge.KubeletTook(n.record()) {
		t.Error("the kubelet has it for the pod, by another name")
	}
	n.driver.called()
	n.becomes(csivol.PVState{Replaced: "is the CSI volume by now", Pod: "shop/web"})
	n.succeed("unmount", dir)
	n.expect("its filesystem lives on", "NodeUnpublish")

	// Another volume by the same name says nothing.
	n = newNode(t)
	n.succeed("mount", n.podDir("p1"), options)
	other := n.kubeletMounts("p1", "pv1")
	text := `{"driverName":"csi.example.com","volumeHandle":"h2"}`
	if err := os.WriteFile(filepath.Join(other, "vol_data.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if n.bridge.KubeletHas(n.record(), "p1") {
		t.Error("it is another volume")
	}
}

// TestSecondDevice: two PersistentVolumes with one handle. The second mountdevice
// overwrote the directory of the first in the record. Then the unmountdevice of the
// first removed a marker and left the volume staged.
func TestSecondDevice(t *testing.T) {
	n := newNode(t)
	first, second := n.deviceDir(), filepath.Join(filepath.Dir(n.deviceDir()), "pv2")
	n.succeed("mountdevice", first, "csi:h1", options)
	s := n.call("mountdevice", second, "csi:h1", as("pv2"))
	if s.Status != flex.StatusFailure || s.Code != flex.CodeFailedPrecondition || !strings.Contains(s.Message, "pv1") || !strings.Contains(s.Message, "pv2") {
		t.Errorf("mountdevice of the other: %+v", s)
	}
	if n.mounts.mounted[second] {
		t.Error("its device mount path has a marker")
	}
	if r := n.record(); r.Name != "pv1" || r.Device != first {
		t.Errorf("the record is that of %s at %s", r.Name, r.Device)
	}
	n.succeed("mountdevice", first, "csi:h1", options)
	n.succeed("mount", n.podDir("p1"), options)
	n.succeedNot("mountdevice", second, "csi:h1", as("pv2"))
	n.succeed("unmount", n.podDir("p1"))
	n.succeed("unmountdevice", second)
	n.succeed("unmountdevice", first)
	n.succeed("detach", "pv1", "node-1")
	n.empty()

	n.succeed("mountdevice", second, "csi:h1", as("pv2")) // now it can
	n.succeed("mount", n.dirOf("p2", "pv2"), as("pv2"))
	n.succeed("unmount", n.dirOf("p2", "pv2"))
	n.succeed("unmountdevice", second)
	n.succeed("detach", "pv2", "node-1")
	n.empty()
}
