package doctor_test

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// short gives the node a kubelet's directory with room for sockets in it.
func (n *node) short() {
	n.t.Helper()
	n.Root = n.path("k")
	n.o.KubeletDir = n.Root
	if err := os.MkdirAll(filepath.Join(n.Root, "pods"), 0o755); err != nil {
		n.t.Fatal(err)
	}
	n.shared(n.Root)
}

// csiDriver starts a real one and waits for it.
func (n *node) csiDriver(attr *syscall.SysProcAttr, args ...string) {
	n.t.Helper()
	n.start("csidriver", attr, append([]string{"--dir", n.path("csi"), "--noop", "--node-id", "n-1"}, args...)...)
	n.await(n.path("csi/csi.sock"))
}

func (n *node) await(socket string) {
	n.t.Helper()
	for giveUp := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(giveUp) {
			n.t.Fatal(err)
		}
	}
}

// dead is a socket without a listener.
func (n *node) dead(path string) string {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		n.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return path
}

func TestCSIDrivers(t *testing.T) {
	testenv.Need(t, "mount")
	for name, tt := range map[string]struct {
		set  func(n *node)
		want []string
		text string
	}{
		"registered": {set: func(n *node) {
			n.configure()
			n.csiDriver(nil, "--register", n.Root)
			n.await(filepath.Join(n.Root, "plugins_registry", csiName+"-reg.sock"))
		}, text: "calls this node n-1"},
		"not registered": {set: func(n *node) { n.configure() }, want: []string{"csi-not-registered " + csiName}, text: "no driver of this name is registered below"},
		"no process at the endpoint": {set: func(n *node) {
			n.configure("endpoint: " + n.dead(n.path("dead.sock")))
		}, want: []string{"csi-no-answer " + csiName}, text: "at the endpoint"},
		"another one at the endpoint": {set: func(n *node) {
			n.configure("endpoint: " + n.path("csi/csi.sock"))
			n.csiDriver(nil, "--name", "other.example.com")
		}, want: []string{"csi-wrong-name " + csiName}, text: `the driver at this socket is "other.example.com"`},
		"a registrar that is gone": {set: func(n *node) {
			n.configure("endpoint: " + n.path("csi/csi.sock"))
			n.csiDriver(nil)
			n.dead(filepath.Join(n.Root, "plugins_registry/gone-reg.sock"))
		}, want: []string{"registration-left-over " + "gone-reg.sock"}, text: "rm "},
		"attaches, and is not asked to": {set: func(n *node) {
			n.configure("endpoint: "+n.path("csi/csi.sock"), "controllerEndpoint: "+n.path("csi/csi.sock"), "attach: None")
			n.csiDriver(nil, "--attach")
		}, want: []string{"csi-not-attached " + csiName}},
		"asked to attach, and cannot": {set: func(n *node) {
			n.configure("endpoint: "+n.path("csi/csi.sock"), "controllerEndpoint: "+n.path("csi/csi.sock"), "attach: Controller")
			n.csiDriver(nil)
		}, want: []string{"csi-not-attached " + csiName}, text: "leave it to Auto"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // drivers that are not there are waited for
			n := newNode(t)
			n.short()
			tt.set(n)
			r := n.run()
			// There is no daemon here, nor an installed driver, which other tests
			// are about.
			r.Findings = without(r.Findings, "daemon-absent", "driver-not-installed")
			want(t, r, filepath.Join(n.Root, "plugins_registry")+"/", tt.want...)
			wantText(t, r, tt.text)
		})
	}
}

func without(all []doctor.Finding, ids ...doctor.ID) (rest []doctor.Finding) {
	for _, f := range all {
		keep := true
		for _, id := range ids {
			keep = keep && f.ID != id
		}
		if keep {
			rest = append(rest, f)
		}
	}
	return rest
}

// TestPropagation: a driver in a mount namespace of its own, that shares its
// mounts with the node or does not.
func TestPropagation(t *testing.T) {
	testenv.Need(t, "mount")
	for name, tt := range map[string]struct {
		attr syscall.SysProcAttr
		want []string
	}{
		"the same namespace": {},
		"bidirectional":      {attr: syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}},
		// Unshareflags makes all mounts private in the new namespace.
		"none": {attr: syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}, want: []string{"csi-mount-propagation "}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.short()
			n.configure("endpoint: " + n.path("csi/csi.sock"))
			n.csiDriver(&tt.attr)
			r := n.run()
			r.Findings = without(r.Findings, "daemon-absent", "driver-not-installed")
			want(t, r, n.Root, tt.want...)
		})
	}
}

func TestKubeletDirNotShared(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	want(t, n.run(), "", "kubelet-dir-not-shared "+n.Root)
}
