package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// csiDriver is a CSI driver behind the bridge: flexdriver passes its calls to the daemon,
// which calls the driver.
type csiDriver struct {
	program string // see binaries
	name    string // what it calls itself
	args    func(n *node) []string
	// config is more of what the daemon is told about it, as lines of YAML.
	config []string
	// registers: the daemon is not told where it listens.
	registers bool
	// left lists what the driver has of volumes on this node.
	left func(n *node) []string
}

// volumeNames are those of the volumes that a CSI driver has from the start.
func volumeNames() []string { return []string{"pv-1", "pv-2", "pv-3"} }

// ownDriver is the project's: disk images on loop devices. It is strict with
// its caller, and wants to see at each step what the one before has given.
func ownDriver(size string, args ...string) *csiDriver {
	return &csiDriver{
		program: "csidriver", name: "loop.csi.example.com",
		args: func(n *node) []string {
			all := append([]string{"--dir", n.disks(), "--node-id", string(nodeName), "--attach"}, args...)
			for _, name := range volumeNames() {
				all = append(all, "--volume", name+"="+size)
			}
			return all
		},
		left: func(n *node) []string { return n.glob(n.disks(), "nodes/*/*.json") },
	}
}

// gcePD is the GCE PD CSI driver, which we did not write.
func gcePD() *csiDriver {
	return &csiDriver{
		program: "gcepd", name: "pd.csi.storage.gke.io",
		args: func(n *node) []string {
			all := []string{"--dir", n.disks()}
			for _, name := range volumeNames() {
				all = append(all, "--disk", name)
			}
			return all
		},
		left: func(n *node) []string { return n.glob(n.disks(), "by-id/*") },
	}
}

// mockDriver is Kubernetes' own. Its volumes are empty directories.
func mockDriver() *csiDriver {
	return &csiDriver{
		program: "mock", name: "mock.csi.example.com",
		args: func(*node) []string { return nil },
		left: (*node).neverUndone,
	}
}

// fuseDriver is the project's driver with mounts that die with it.
func fuseDriver() *csiDriver {
	return &csiDriver{
		program: "fusedriver", name: "fuse.csi.example.com",
		args: func(n *node) []string { return []string{"--dir", n.disks()} },
		left: (*node).neverUndone,
	}
}

func csiFUSE() kind {
	return kind{
		name: "csi-fuse", size: "64Mi", mounted: "fuse.flex2csi", needs: []string{"fuse"}, shared: true,
		csi: fuseDriver(), options: handle("%s"),
	}
}

// csiExt4 is the disk of a CSI driver with which most rules are tested.
func csiExt4() kind {
	return kind{
		name: "csi-ext4", fsType: "ext4", size: "64Mi", mounted: "ext4", needs: []string{"ext4"}, shared: true, grows: true,
		csi: ownDriver("64Mi"), options: handle("%s"),
	}
}

func csiXFS() kind {
	return kind{
		name: "csi-xfs", fsType: "xfs", size: "320Mi", mounted: "xfs", needs: []string{"xfs"}, shared: true, grows: true,
		csi: ownDriver("320Mi"), options: handle("%s"),
	}
}

// bridged are the kinds of volume that come over the bridge.
func bridged() []kind {
	return []kind{
		csiExt4(),
		csiFUSE(),
		{
			name: "gce-pd", fsType: "ext4", size: "64Mi", mounted: "ext4", needs: []string{"ext4"}, shared: true,
			csi: gcePD(), options: handle("projects/test-project/zones/country-region-zone/disks/%s"),
		},
		{
			name: "mock", size: "64Mi", needs: []string{"root"}, csi: mockDriver(),
			options: func(_ *node, name string) map[string]string {
				return map[string]string{"volumeID": strings.TrimPrefix(name, "pv-")}
			},
		},
	}
}

// disks are what most rules are tested with: a disk that flexdriver mounts
// itself, and one of a CSI driver.
func disks() []kind { return []kind{imageExt4(), csiExt4()} }

// handle makes the options of a volume with a form of volume_id.
func handle(form string) func(*node, string) map[string]string {
	return func(_ *node, name string) map[string]string {
		return map[string]string{"volumeID": fmt.Sprintf(form, name)}
	}
}

// newNode returns a node on which the driver offers volumes of this kind.
func (k kind) newNode(t *testing.T, attach bool, edits ...func(*driverConfig)) *node {
	t.Helper()
	if k.csi == nil {
		return newNode(t, attach, edits...)
	}
	need(t, k.needs...)
	n := emptyNode(t)
	n.csi = k.csi
	n.installByHand(attach, append(k.edits(n), edits...)...)
	n.startCSIDriver()
	n.startDaemon()
	t.Cleanup(n.checkBridge)
	n.start()
	return n
}

// edits are what flexdriver's configuration needs for this kind.
func (k kind) edits(n *node) []func(*driverConfig) {
	if k.csi == nil {
		return nil
	}
	return []func(*driverConfig){n.overBridge}
}

// forDisks runs f for each of disks in these modes, attach:true or not, on a
// node with a volume that is attached.
func forDisks(t *testing.T, modes []bool, f func(t *testing.T, n *node, v *vol)) {
	for _, attach := range modes {
		all := disks()
		if attach { // mountdevice does nothing for an image
			all = append(slices.DeleteFunc(all, func(k kind) bool { return k.name == imageExt4().name }), deviceExt4())
		}
		forKinds(t, all, []bool{attach}, f)
	}
}

func forKinds(t *testing.T, kinds []kind, modes []bool, f func(t *testing.T, n *node, v *vol)) {
	for _, k := range kinds {
		for _, attach := range modes {
			t.Run(fmt.Sprintf("%s/attach=%t", k.name, attach), func(t *testing.T) {
				n := k.newNode(t, attach)
				v := n.newVolume(k, "pv-1")
				n.attach(v)
				f(t, n, v)
			})
		}
	}
}

// Modes of a driver.
func onlyDetached() []bool { return []bool{false} }
func onlyAttached() []bool { return []bool{true} }
func bothModes() []bool    { return []bool{false, true} }

// checkBridge fails if daemon or driver still have something of a volume.
func (n *node) checkBridge() {
	n.t.Helper()
	if n.t.Failed() {
		return // and has been told why
	}
	if left := n.records(); len(left) > 0 {
		n.t.Errorf("the daemon still has records: %q", left)
	}
	if left := n.csi.left(n); len(left) > 0 {
		n.t.Errorf("the CSI driver still has: %q", left)
	}
}

// records are the daemon's, of volumes, and what flexdriver has left for it.
func (n *node) records() []string { return n.glob(n.bridgeDir(), "state/*.json") }

func (n *node) glob(dir, pattern string) []string {
	n.t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	n.must(err)
	return names
}

// csiCall is a line of a driver's log of calls (test/csidriver/calls).
type csiCall struct {
	Begin  bool   `json:"begin"`
	Method string `json:"method"`
	Volume string `json:"volume"`
	Path   string `json:"path"`
	Work   string `json:"work"`
}

// csiCalls returns the calls that the CSI driver has answered.
func (n *node) csiCalls() (answered []csiCall) {
	n.t.Helper()
	body, err := os.ReadFile(filepath.Join(n.bridgeDir(), "calls"))
	n.must(err)
	for line := range strings.Lines(string(body)) {
		var c csiCall
		n.must(json.Unmarshal([]byte(line), &c))
		if !c.Begin {
			answered = append(answered, c)
		}
	}
	return answered
}

// csiCalled returns how often the CSI driver has answered a method.
func (n *node) csiCalled(method string) (times int) {
	n.t.Helper()
	for _, c := range n.csiCalls() {
		if c.Method == method {
			times++
		}
	}
	return times
}

// csiBegan reports whether a method of the CSI driver was called.
func (n *node) csiBegan(method string) bool {
	body, _ := os.ReadFile(filepath.Join(n.bridgeDir(), "calls")) // not yet written
	return strings.Contains(string(body), `"method":"`+method+`"`)
}

// neverUndone lists what the driver was called for and never to undo.
func (n *node) neverUndone() []string {
	n.t.Helper()
	undoneBy := map[string]string{
		"ControllerPublishVolume": "ControllerUnpublishVolume",
		"NodeStageVolume":         "NodeUnstageVolume",
		"NodePublishVolume":       "NodeUnpublishVolume",
	}
	there := map[string]bool{}
	for _, c := range n.csiCalls() {
		for done, undone := range undoneBy {
			what := done + " " + c.Volume + " " + c.Path
			switch {
			case c.Work != "OK":
			case c.Method == done:
				there[what] = true
			case c.Method == undone:
				delete(there, what)
			}
		}
	}
	return slices.Sorted(maps.Keys(there))
}
