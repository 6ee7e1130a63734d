package doctor_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestKubelet: the kubelet's settings are read as the kubelet reads them, from its command
// line and its files, and compared with the operator's.
func TestKubelet(t *testing.T) {
	testenv.Need(t, "mount")
	for name, tt := range map[string]struct {
		// args are the kubelet's, after --root-dir; DIR is a directory of the test.
		args  func(n *node) []string
		other bool // the kubelet uses n.path("other") as plugin directory
		from  string
		want  []string
	}{
		"a flag": {args: func(n *node) []string { return []string{"--v=4", "--volume-plugin-dir", n.PluginDir} }, from: "its flag --volume-plugin-dir"},
		"a file": {args: func(n *node) []string {
			return []string{"--config=" + n.kubeletConfig("kubelet.yaml", "volumePluginDir: "+n.PluginDir)}
		}, from: "volumePluginDir in "},
		"a drop-in wins over the file": {args: func(n *node) []string {
			n.kubeletConfig("drop/10-a.conf", "volumePluginDir: /nowhere")
			n.kubeletConfig("drop/20-b.conf", "volumePluginDir: "+n.PluginDir+"/")
			n.kubeletConfig("drop/30-c.yaml", "volumePluginDir: /not-a-drop-in")
			return []string{"--config-dir", n.path("drop"), "--config", n.kubeletConfig("kubelet.yaml", "volumePluginDir: /nowhere")}
		}, from: "drop/20-b.conf"},
		"a flag wins over all": {args: func(n *node) []string {
			return []string{"--config", n.kubeletConfig("kubelet.yaml", "volumePluginDir: "+n.PluginDir), "--volume-plugin-dir=" + n.path("other")}
		}, other: true, from: "its flag --volume-plugin-dir", want: []string{"plugin-dir-mismatch"}},
		"JSON": {args: func(n *node) []string {
			return []string{"--config", n.kubeletConfig("kubelet.json", `{"kind":"KubeletConfiguration","volumePluginDir":"`+n.PluginDir+`","enableControllerAttachDetach":false}`)}
		}, from: "volumePluginDir in ", want: []string{"controller-attach-detach-off"}},
		"attaches by itself": {args: func(n *node) []string {
			return []string{"--enable-controller-attach-detach=false", "--volume-plugin-dir", n.PluginDir}
		}, want: []string{"controller-attach-detach-off"}},
		"the flag says otherwise than the file": {args: func(n *node) []string {
			return []string{"--enable-controller-attach-detach", "--config", n.kubeletConfig("kubelet.yaml", "enableControllerAttachDetach: false\nvolumePluginDir: "+n.PluginDir)}
		}},
		"changed since": {args: func(n *node) []string {
			file := n.kubeletConfig("kubelet.yaml", "volumePluginDir: "+n.PluginDir)
			future := time.Now().Add(time.Hour)
			if err := os.Chtimes(file, future, future); err != nil {
				n.t.Fatal(err)
			}
			return []string{"--config", file}
		}, want: []string{"kubelet-not-restarted"}},
		"does not exist": {
			args: func(n *node) []string { return []string{"--volume-plugin-dir", n.path("nowhere")} },
			want: []string{"plugin-dir-mismatch", "plugin-dir-missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.shared(n.Root)
			if err := os.Mkdir(n.path("other"), 0o755); err != nil {
				t.Fatal(err)
			}
			n.kubelet(append([]string{"--root-dir", n.Root + "/"}, tt.args(n)...)...)
			r := n.run()
			got := []string{}
			for _, f := range r.Findings {
				if f.Severity != doctor.OK {
					got = append(got, string(f.ID))
				}
			}
			for _, id := range tt.want {
				if len(found(r, doctor.ID(id))) != 1 {
					t.Errorf("no %s", id)
				}
			}
			if len(got) != len(tt.want) {
				t.Errorf("found %s, want %s\n%s", got, tt.want, text(t, r))
			}
			wantText(t, r, tt.from)
			if tt.other {
				wantText(t, r, "flexdriver install --volume-plugin-dir "+n.path("other"))
			}
		})
	}
}

func (n *node) kubeletConfig(name, content string) string {
	return n.write(n.path(name), content+"\n", 0o644)
}

// TestKubeletDir: daemon, doctor and kubelet have to mean the same directory; a
// symbolic link to it is the same here.
func TestKubeletDir(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	n.kubelet("--root-dir", n.Root, "--volume-plugin-dir", n.PluginDir)
	link := n.path("link")
	if err := os.Symlink(n.Root, link); err != nil {
		t.Fatal(err)
	}
	n.o.KubeletDir = link
	want(t, n.run(), "")
	n.o.KubeletDir = filepath.Dir(n.Root)
	r := n.run()
	if f := found(r, "kubelet-dir-mismatch"); len(f) != 1 {
		t.Errorf("another directory is not found:\n%s", text(t, r))
	}
}

// TestUntrustedPluginDir: what others may put there runs as root.
func TestUntrustedPluginDir(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	if err := os.Chmod(n.PluginDir, 0o777); err != nil {
		t.Fatal(err)
	}
	want(t, n.run(), "", "plugin-dir-untrusted "+n.PluginDir)
}

// TestUnusablePluginDir: mounted so that nothing in it can be started or changed.
func TestUnusablePluginDir(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	n.mount("none", n.PluginDir, "tmpfs", msNoExec|msReadOnly)
	want(t, n.run(), "", "plugin-dir-noexec "+n.PluginDir, "plugin-dir-read-only "+n.PluginDir)
}

// TestHostRoot: in a pod the node's processes and files are below another root,
// and those that a socket tells of are not.
func TestHostRoot(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	n.o.HostRoot = n.path("host")
	if err := os.MkdirAll(n.path("host/proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.mount("/proc", n.path("host/proc"), "", unix.MS_BIND|unix.MS_REC)
	n.write(filepath.Join(n.PluginDir, "example.com~locked/locked"), answer, 0o644)
	n.kubelet("--root-dir", n.Root, "--volume-plugin-dir", n.PluginDir)
	r := n.run()
	want(t, r, n.PluginDir+"/", "driver-not-executable example.com~locked/locked")
	wantText(t, r, "its flag --volume-plugin-dir", "looked at through "+n.path("host/proc"))
}
