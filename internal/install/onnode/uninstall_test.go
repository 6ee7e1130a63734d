package onnode_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
)

// An uninstallation knows of the kubelet what its Query says: nothing, in a pod.
type uninstallation struct {
	onnode.UninstallOptions
	Query kubelet.Query
}

// uninstaller has the state directory mounted from the node, as a pod has, and
// both drivers installed.
func uninstaller(t *testing.T) (*node, *uninstallation) {
	t.Helper()
	n := newNode(t)
	// A short path that is the same in the container and on the node.
	dir, err := os.MkdirTemp("", "un") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, path := range []string{dir + "/state", dir + "/run"} {
		n.mkdir(path)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(n.at(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(n.at(path), path, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	}
	n.on.StateDir, n.on.Socket = dir+"/state", dir+"/run/s"
	for _, c := range n.drivers {
		c.StateDir, c.Socket = n.on.StateDir, n.on.Socket
	}
	n.wantInstalled(pluginDir, "disk", "share")
	return n, &uninstallation{UninstallOptions: onnode.UninstallOptions{Patience: 300 * time.Millisecond, NoSweep: "there is no cluster"}}
}

func (n *node) uninstall(o *uninstallation) error {
	n.t.Helper()
	n.out.Reset()
	on := n.on
	on.Query = o.Query
	return on.Uninstall(n.t.Context(), o.UninstallOptions)
}

func (n *node) wantUninstalled(o *uninstallation, left ...string) {
	n.t.Helper()
	if err := n.uninstall(o); err != nil {
		n.t.Fatalf("%v\n%s", err, &n.out)
	}
	n.wantThere(pluginDir, left...)
}

// wantKept wants a refusal with these texts, and that all is as before.
func (n *node) wantKept(o *uninstallation, texts ...string) {
	n.t.Helper()
	err := n.uninstall(o)
	if err == nil {
		n.t.Fatalf("no error\n%s", &n.out)
	}
	wantTexts(n.t, err.Error(), texts...)
	n.wantThere(pluginDir, "disk", "share")
	if r, err := statedir.GetCordon(n.on.StateDir); r != nil || err != nil {
		n.t.Errorf("still cordoned: %v, %v", r, err)
	}
}

// record leaves one of a volume that a pod has.
func (n *node) record(driver string) {
	n.t.Helper()
	store, err := volstate.Open(n.on.StateDir)
	if err != nil {
		n.t.Fatal(err)
	}
	dir := kubeletDir + "/pods/1234/volumes/example.com~disk/data"
	r := &volstate.Record{Driver: "loop.csi.example.com", Handle: "vol-1", FlexDriver: driver, Name: "pv-1"}
	r.Targets = map[string]*volstate.Target{dir: {Publish: volstate.Done, Bound: true}}
	if err := store.Put(r); err != nil {
		n.t.Fatal(err)
	}
}

// TestUninstall: without a daemon nothing is left, on the node neither, and a
// second time is no error.
func TestUninstall(t *testing.T) {
	n, o := uninstaller(t)
	for range 2 {
		n.wantUninstalled(o)
		for _, path := range []string{n.on.StateDir, filepath.Dir(n.on.Socket)} {
			if _, err := os.Lstat(n.at(path)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the node still has %s (%v)", path, err)
			}
		}
	}
}

// TestUninstallWithoutWord: the drivers are found by their configuration files; those of
// others stay.
func TestUninstallWithoutWord(t *testing.T) {
	n, o := uninstaller(t)
	other := drivers("other")
	n.drivers = append(n.drivers, other...)
	n.wantInstalled(pluginDir, "disk", "other", "share")
	if err := os.Remove(onnode.Path(n.on.StateDir)); err != nil {
		t.Fatal(err)
	}
	o.Query = n.on.Query
	n.wantUninstalled(o, "other")
	if _, err := driverconfig.Load(n.at(pluginDir + "/example.com~other/.flexdriver.json")); err != nil {
		t.Error(err)
	}
}

// TestInUse: what is refused, and what force leaves.
func TestInUse(t *testing.T) {
	mount := func(n *node) {
		path := kubeletDir + "/pods/1234/volumes/example.com~disk/data"
		n.mkdir(path)
		n.mount("none", path, "tmpfs", 0)
	}
	for name, tt := range map[string]struct {
		prepare func(n *node)
		want    []string
		left    string
	}{
		"a record": {func(n *node) { n.record("example.com/disk") }, []string{"volumes are in use", "pv-1 of example.com/disk", "/pods/1234/"}, "these volumes are left as they are"},
		"a pending unmount": {func(n *node) {
			if err := statedir.WritePendingUnmount(n.on.StateDir, statedir.PendingUnmount{Driver: "example.com/disk", Dir: kubeletDir + "/pods/1234/volumes/example.com~disk/data"}); err != nil {
				n.t.Fatal(err)
			}
		}, []string{"unmounted while the daemon was down", "/pods/1234/"}, "these volumes are left as they are"},
		"a spoilt record": {func(n *node) {
			if err := os.WriteFile(n.on.StateDir+"/x.json", []byte("{"), 0o600); err != nil {
				n.t.Fatal(err)
			}
		}, []string{"a record that cannot be read"}, "these volumes are left as they are"},
		"a mount without a record": {mount, []string{"volumes of it are mounted"}, "unmount them by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			n, o := uninstaller(t)
			tt.prepare(n)
			n.wantKept(o, tt.want...)
			o.Force = true
			o.Sweep = func(context.Context) ([]string, error) {
				n.t.Error("what may be in use is detached")
				return nil, nil
			}
			n.wantUninstalled(o)
			wantTexts(t, n.out.String(), tt.want[len(tt.want)-1], tt.left)
		})
	}
}

// TestSome: one driver of which no volume is in use, and none that the daemon
// would install again.
func TestSome(t *testing.T) {
	n, o := uninstaller(t)
	n.record("example.com/disk")
	o.Drivers = []string{"example.com/disk"}
	n.wantKept(o, "pv-1")
	o.Drivers = []string{"example.com/share"}
	n.wantUninstalled(o, "disk")
	word, err := onnode.Read(n.on.StateDir)
	if err != nil || len(word.Drivers) != 1 || word.Drivers[0].Driver != "example.com/disk" {
		t.Errorf("word %+v, %v", word, err)
	}
}

// TestSweep: the state of the cluster decides about the result.
func TestSweep(t *testing.T) {
	n, o := uninstaller(t)
	o.Sweep = func(context.Context) ([]string, error) { return []string{"pv-1"}, errors.New("the API server is away") }
	err := n.uninstall(o)
	if err == nil {
		t.Error("no error")
	}
	o.Sweep = func(context.Context) ([]string, error) { return []string{"pv-2"}, nil }
	n.wantUninstalled(o)
	wantTexts(t, n.out.String(), "pv-2")
}

// TestInstallEndsCordon: install ends an uninstallation that was killed.
func TestInstallEndsCordon(t *testing.T) {
	n, _ := uninstaller(t)
	if _, err := statedir.BeginCordon(n.on.StateDir); err != nil {
		t.Fatal(err)
	}
	n.wantInstalled(pluginDir, "disk", "share")
	if r, err := statedir.GetCordon(n.on.StateDir); r != nil || err != nil {
		t.Errorf("still cordoned: %v, %v", r, err)
	}
}

// TestLeave: a daemon removes its directories only if it was cordoned, and its drivers
// are uninstalled.
func TestLeave(t *testing.T) {
	n, _ := uninstaller(t)
	leave := func(want bool) {
		t.Helper()
		left, err := onnode.Leave(n.on.StateDir, n.on.Socket)
		if left != want || err != nil {
			t.Errorf("left %v, %v; want %v", left, err, want)
		}
	}
	leave(false)
	if _, err := statedir.BeginCordon(n.on.StateDir); err != nil {
		t.Fatal(err)
	}
	leave(false)
	word, err := onnode.Read(n.on.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	word.Drivers = nil
	if err := word.Write(n.on.StateDir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"csidrivers", "persistentvolumes"} { // what the API server has said
		if err := os.WriteFile(filepath.Join(n.on.StateDir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leave(true)
	if _, err := os.Lstat(n.at(n.on.StateDir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state directory is there: %v", err)
	}
}

// vendor has the vendor's program in the place of a driver, as its installer puts it
// there.
func (n *node) vendor(name string) {
	n.t.Helper()
	n.write(pluginDir+"/example.com~"+name+"/"+name, vendorProgram)
	if err := os.Chmod(n.at(pluginDir+"/example.com~"+name+"/"+name), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

const vendorProgram = "#!/bin/sh\necho '{\"status\":\"Success\"}'\n"

// wantVendor wants exactly these drivers, with the vendor's program in their place.
func (n *node) wantVendor(names ...string) {
	n.t.Helper()
	n.wantThere(pluginDir, names...)
	for _, name := range names {
		if text, err := os.ReadFile(n.at(pluginDir + "/example.com~" + name + "/" + name)); err != nil || string(text) != vendorProgram {
			n.t.Errorf("%s is not the vendor's: %v", name, err)
		}
		if _, err := os.Lstat(n.at(pluginDir + "/example.com~" + name + "/.flexdriver.json")); !errors.Is(err, os.ErrNotExist) {
			n.t.Errorf("flexdriver's configuration of %s is there (%v)", name, err)
		}
	}
}

// TestRestore: the one driver had a program of a vendor, the other had none.
func TestRestore(t *testing.T) {
	const original = ".example.com~disk.original"
	n, o := uninstaller(t)
	o.Restore = true
	n.wantKept(o, "no program was kept", "run uninstall without --restore")
	n.vendor("disk")
	n.wantInstalled(pluginDir, original, "disk", "share")
	wantTexts(t, n.out.String(), "kept "+pluginDir+"/example.com~disk/disk, which is not flexdriver, as "+pluginDir+"/"+original)

	n.record("example.com/disk")
	if err := n.uninstall(o); err == nil || !strings.Contains(err.Error(), "pv-1 of example.com/disk") {
		t.Errorf("restored under a volume: %v", err)
	}
	n.wantThere(pluginDir, original, "disk", "share")
	records, err := filepath.Glob(n.on.StateDir + "/*.json")
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	if err := os.Remove(records[0]); err != nil {
		t.Fatal(err)
	}
	if err := n.uninstall(o); err != nil {
		t.Fatalf("%v\n%s", err, &n.out)
	}
	n.wantVendor("disk")
}

// TestRestoreLater: after an uninstallation without Restore, when nothing else is left.
func TestRestoreLater(t *testing.T) {
	const original = ".example.com~disk.original"
	n, o := uninstaller(t)
	n.vendor("disk")
	n.wantInstalled(pluginDir, original, "disk", "share")
	n.wantUninstalled(o, original)
	wantTexts(t, n.out.String(), "the program that was there before is kept as "+pluginDir+"/"+original+": uninstall --restore puts it back")
	o.Restore, o.Query = true, n.on.Query
	if err := n.uninstall(o); err != nil {
		t.Fatalf("%v\n%s", err, &n.out)
	}
	n.wantVendor("disk")
	if err := n.uninstall(o); err == nil || !strings.Contains(err.Error(), "no driver of flex2csi is in "+pluginDir) {
		t.Errorf("restored twice: %v", err)
	}
	n.wantVendor("disk")
}

// TestOverwritten: the vendor's installer has written its program back. The probe says so
// without starting it, and uninstalling leaves it.
func TestOverwritten(t *testing.T) {
	n, o := uninstaller(t)
	n.vendor("disk")
	word, err := onnode.Read(n.on.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	probed := word.Probe(t.Context(), []string{"example.com/disk", "example.com/share"})
	if probed[0].Err == nil || !strings.Contains(probed[0].Err.Error(), "is not flexdriver: another program was put in its place") || probed[1].Err != nil {
		t.Errorf("probed %+v", probed)
	}
	n.wantUninstalled(o, "disk")
	n.wantVendor("disk")
}

// TestProbeAnswer: a flexdriver that does not answer as configured is another one than
// the kubelet was to find.
func TestProbeAnswer(t *testing.T) {
	n := newNode(t)
	n.wantInstalled(pluginDir, "disk", "share")
	word, err := onnode.Read(n.on.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(n.at(pluginDir + "/example.com~share/.flexdriver.json")); err != nil {
		t.Fatal(err)
	}
	if probed := word.Probe(t.Context(), []string{"example.com/disk", "example.com/share"}); probed[0].Err != nil || probed[1].Err == nil {
		t.Errorf("probed %+v", probed)
	}
}
