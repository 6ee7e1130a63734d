package onnode_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
)

// TestInstall: all drivers, with paths of the node and word of where they are;
// a second time nothing changes; another release, or a rollback, replaces both.
func TestInstall(t *testing.T) {
	n := newNode(t)
	n.kubelet()
	n.wantInstalled(pluginDir, "disk", "share")
	wantTexts(t, n.out.String(),
		"plugin directory "+pluginDir+", from the kubelet (process ", "watches "+pluginDir,
		"renamed "+pluginDir+"/.example.com~disk.new to "+pluginDir+"/example.com~disk")
	c, err := driverconfig.Load(n.at(pluginDir + "/example.com~disk/.flexdriver.json"))
	if err != nil {
		t.Fatal(err)
	}
	if want := drivers("disk")[0]; c.Socket != want.Socket || c.StateDir != want.StateDir || c.Capabilities != want.Capabilities {
		t.Errorf("configuration %+v, want %+v", c, want)
	}
	word, err := onnode.Read(n.on.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range word.Probe(t.Context(), []string{"example.com/disk", "example.com/share"}) {
		if p.Err != nil {
			t.Errorf("%+v", p)
		}
	}
	n.wantInstalled(pluginDir, "disk", "share")
	wantTexts(t, n.out.String(), "disk/disk and its configuration are up to date: changed nothing")

	n.drivers[0].Capabilities.SELinuxRelabel = false
	n.wantInstalled(pluginDir, "disk", "share")
	wantTexts(t, n.out.String(), "example.com/disk: renamed the new version into place", "example.com/share: "+pluginDir)
}

// TestPluginDir: who says which it is, and that links are followed as the node
// follows them.
func TestPluginDir(t *testing.T) {
	const other = "/var/lib/kubelet/volumeplugins"
	table := func(name string) *distribution.Distribution {
		d, err := distribution.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		return &d
	}
	for name, tt := range map[string]struct {
		prepare func(n *node)
		want    string
		from    string
	}{
		"given": {func(n *node) {
			n.kubelet()
			n.on.Query.PluginDir = other
		}, other, "from --volume-plugin-dir"},
		"configz": {func(n *node) {
			n.kubelet()
			n.on.Query.Configz = func(context.Context) (string, error) { return other + "/", nil }
		}, other, "from volumePluginDir in the kubelet's configz"},
		"configz that may not be read": {func(n *node) {
			n.on.Query.Configz = func(context.Context) (string, error) { return "", os.ErrPermission }
			n.on.Query.PID = n.start("kubelet", "", "", "--volume-plugin-dir="+other)
		}, other, "its flag --volume-plugin-dir"},
		"flag": {func(n *node) {
			n.on.Query.PID = n.start("kubelet", "", "", "--volume-plugin-dir="+other)
			n.on.Query.Distribution = table("aks")
		}, other, "its flag --volume-plugin-dir"},
		"file, by way of an absolute link": {func(n *node) {
			n.write("/var/lib/kubelet/real.yaml", "volumePluginDir: "+other)
			if err := os.Symlink("/var/lib/kubelet/real.yaml", n.at("/var/lib/kubelet/config.yaml")); err != nil {
				t.Fatal(err)
			}
			n.on.Query.PID = n.start("kubelet", "", "", "--config=/var/lib/kubelet/config.yaml")
		}, other, "volumePluginDir in /var/lib/kubelet/config.yaml"},
		"distribution": {func(n *node) {
			n.on.Query.Distribution = table("rke2")
			n.mkdir(other)
		}, other, "from --distribution rke2"},
		"default": {func(*node) {}, pluginDir, "from the default"},
		"an absolute link": {func(n *node) {
			n.mkdir("/opt/plugins")
			if err := os.Symlink("/opt/plugins", n.at("/plugins")); err != nil {
				t.Fatal(err)
			}
			n.on.Query.PluginDir = "/plugins"
		}, "/opt/plugins", "from --volume-plugin-dir"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.prepare(n)
			n.wantInstalled(tt.want, "disk", "share")
			wantTexts(t, n.out.String(), tt.from)
		})
	}
}

// TestEmbedded: a program that has a kubelet inside tells nothing, and yet
// watches the directory.
func TestEmbedded(t *testing.T) {
	const dir = "/var/lib/kubelet/volumeplugins"
	n := newNode(t)
	n.mkdir(dir)
	n.start("k3s", dir, "")
	n.wantInstalled(dir, "disk", "share")
	wantTexts(t, n.out.String(), "from what k3s (process ")
}

// TestRefusals: what no kubelet can use, each with what to do.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(n *node)
		want    []string
	}{
		"read-only": {func(n *node) { n.mount("none", pluginDir, "tmpfs", unix.MS_RDONLY) }, []string{pluginDir + " is on a read-only file system", "volumePluginDir"}},
		"noexec":    {func(n *node) { n.mount("none", pluginDir, "tmpfs", unix.MS_NOEXEC) }, []string{"is mounted noexec", "mount --bind " + pluginDir}},
		"guessed, and not there": {func(n *node) {
			d, err := distribution.Get("aks")
			if err != nil {
				n.t.Fatal(err)
			}
			n.on.Query.Distribution = &d
		}, []string{"/etc/kubernetes/volumeplugins (from --distribution aks) does not exist", "this node has " + pluginDir}},
		"not there, below what is read-only": {func(n *node) {
			n.mkdir("/ro")
			n.mount("none", "/ro", "tmpfs", unix.MS_RDONLY)
			n.on.Query.PID = n.start("kubelet", "", "", "--volume-plugin-dir=/ro/plugins")
		}, []string{"make plugin directory /ro/plugins", "read-only file system. Choose a directory"}},
		"a file": {func(n *node) {
			n.write("/plugins", "")
			n.on.Query.PluginDir = "/plugins"
		}, []string{"/plugins is not a directory"}},
		"another kubelet's directory": {func(n *node) {
			n.on.Query.RootDir = kubeletDir
			n.kubelet("--root-dir=/var/lib/k0s/kubelet")
		}, []string{"keeps its volumes below /var/lib/k0s/kubelet (its flag --root-dir)", "set kubeletDir to /var/lib/k0s/kubelet"}},
		"a container with another directory": {func(n *node) {
			n.on.Query.PID = n.start("kubelet", "", pluginDir)
		}, []string{"sees another " + pluginDir + " than the node has: it has another directory by that name"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt.prepare(n)
			n.wantRefused(tt.want...)
		})
	}
}

// TestMissing: a directory that the kubelet is told to use is made. That kubelet
// has to be restarted.
func TestMissing(t *testing.T) {
	n := newNode(t)
	n.on.Query.PID = n.start("kubelet", pluginDir, "", "--volume-plugin-dir=/etc/kubernetes/volumeplugins")
	n.wantInstalled("/etc/kubernetes/volumeplugins", "disk", "share")
	wantTexts(t, n.out.String(), "made /etc/kubernetes/volumeplugins", "does not watch /etc/kubernetes/volumeplugins")
}

// TestContainer: a kubelet with mounts of its own, which has the node's directory.
func TestContainer(t *testing.T) {
	n := newNode(t)
	n.mkdir("/elsewhere")
	n.on.Query.PID = n.start("kubelet", pluginDir, "/elsewhere")
	n.wantInstalled(pluginDir, "disk", "share")
	wantTexts(t, n.out.String(), "watches "+pluginDir)
}

// TestFormer: a driver that is not in the configuration any more stays, for its
// volumes' sake, and is remembered until it is gone or wanted again.
func TestFormer(t *testing.T) {
	n := newNode(t)
	n.wantInstalled(pluginDir, "disk", "share")
	n.drivers = drivers("disk")
	for range 2 {
		n.wantInstalled(pluginDir, "disk", "share")
		wantTexts(t, n.out.String(), "example.com/share is not in the configuration any more, and stays installed", "flex2csi uninstall --driver example.com/share")
	}
	word, err := onnode.Read(n.on.StateDir)
	if err != nil || len(word.Drivers) != 1 || len(word.Former) != 1 {
		t.Fatalf("word %+v, %v", word, err)
	}
	n.drivers = drivers("disk", "share")
	n.wantInstalled(pluginDir, "disk", "share")
	if word, err = onnode.Read(n.on.StateDir); err != nil || len(word.Former) != 0 {
		t.Errorf("word %+v, %v", word, err)
	}
}

// TestOneFails: the others are installed, and the failure is told.
func TestOneFails(t *testing.T) {
	n := newNode(t)
	n.write(pluginDir+"/example.com~disk", "in the way")
	err := n.install()
	if err == nil {
		t.Fatal("no error")
	}
	wantTexts(t, err.Error(), "install driver example.com/disk", "is not a directory: move it away")
	n.wantThere(pluginDir, "disk", "share")
	word, err := onnode.Read(n.on.StateDir)
	if err != nil || len(word.Drivers) != 1 || word.Drivers[0].Driver != "example.com/share" {
		t.Errorf("word %+v, %v", word, err)
	}
}

// TestProbe: what is installed is what is asked, not what ought to be.
func TestProbe(t *testing.T) {
	n := newNode(t)
	n.wantInstalled(pluginDir, "disk", "share")
	if err := os.Chmod(n.at(pluginDir+"/example.com~disk/disk"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(n.at(pluginDir + "/example.com~share")); err != nil {
		t.Fatal(err)
	}
	word, err := onnode.Read(n.on.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range word.Probe(t.Context(), []string{"example.com/disk", "example.com/share", "example.com/other"}) {
		if p.Err == nil {
			t.Errorf("%s works", p.Driver)
		}
	}
}

// TestReadRefuses: what the word names is run as root.
func TestReadRefuses(t *testing.T) {
	n := newNode(t)
	n.wantInstalled(pluginDir, "disk", "share")
	if err := os.Chmod(onnode.Path(n.on.StateDir), 0o666); err != nil {
		t.Fatal(err)
	}
	if word, err := onnode.Read(n.on.StateDir); err == nil {
		t.Errorf("a file that others can change is believed: %+v", word)
	}
	n.wantInstalled(pluginDir, "disk", "share") // which writes it again
	if _, err := onnode.Read(n.on.StateDir); err != nil {
		t.Error(err)
	}
}

// TestByDriverInstall: both installers make the same of a directory.
func TestByDriverInstall(t *testing.T) {
	n := newNode(t)
	if _, err := install.Install(t.Context(), install.Options{
		PluginDir: n.at(pluginDir), Driver: n.drivers[0].Driver, Executable: n.executable, Config: n.drivers[0],
	}); err != nil {
		t.Fatal(err)
	}
	n.wantInstalled(pluginDir, "disk", "share")
	wantTexts(t, n.out.String(), "example.com/disk: "+filepath.Join(pluginDir, "example.com~disk/disk")+" and its configuration are up to date")
}
