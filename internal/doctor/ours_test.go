package doctor_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestOurDriver: flexdriver itself, as it is installed, in all the ways in which
// it and what is around it may not fit together.
func TestOurDriver(t *testing.T) {
	testenv.Need(t, "mount")
	program, err := testenv.Program(t.TempDir(), "FLEXDRIVER_BINARY", "../../cmd/flexdriver")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		install []string // more arguments
		change  func(n *node, dir string)
		want    []string
	}{
		"as it should be": {},
		"another socket":  {install: []string{"--socket", "/run/other/s"}, want: []string{"driver-socket-differs example.com/disk"}},
		"no configuration": {change: func(n *node, dir string) {
			if err := os.Remove(filepath.Join(dir, ".flexdriver.json")); err != nil {
				n.t.Fatal(err)
			}
		}, want: []string{"driver-not-configured example.com/disk"}},
		"an update that was killed": {change: func(n *node, dir string) {
			n.write(filepath.Join(dir, ".executable.old"), "", 0o755)
		}, want: []string{"install-interrupted example.com~disk"}},
		"overwritten": {change: func(n *node, dir string) {
			n.write(filepath.Join(dir, "disk"), answer, 0o755)
		}, want: []string{"driver-overwritten example.com/disk"}},
		"overwritten, and no configuration of the daemon": {change: func(n *node, dir string) {
			n.write(filepath.Join(dir, "disk"), answer, 0o755)
			n.o.Config = n.path("none.yaml")
		}, want: []string{"driver-overwritten example.com/disk"}},
		"overwritten by an installer that deletes the directory": {change: func(n *node, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				n.t.Fatal(err)
			}
			n.write(filepath.Join(dir, "disk"), answer, 0o755)
		}, want: []string{"driver-overwritten example.com/disk"}},
		"not served": {change: func(n *node, _ string) {
			text, err := os.ReadFile(n.o.Config)
			if err != nil {
				n.t.Fatal(err)
			}
			n.write(n.o.Config, strings.ReplaceAll(string(text), "example.com/disk", "example.com/tape"), 0o600)
		}, want: []string{"driver-not-served example.com/disk", "driver-not-installed example.com/tape"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.short()
			n.configure("endpoint: " + n.path("csi/csi.sock"))
			n.csiDriver(nil)
			n.install(program, append([]string{"--socket", n.o.Socket}, tt.install...)...)
			if tt.change != nil {
				tt.change(n, filepath.Join(n.PluginDir, "example.com~disk"))
			}
			r := n.run()
			// There is no daemon, and this program has another version.
			r.Findings = without(r.Findings, "daemon-absent", "driver-version-differs")
			want(t, r, n.PluginDir+"/", tt.want...)
		})
	}
}

func (n *node) install(program string, args ...string) {
	n.t.Helper()
	args = append([]string{"install", "--backend=csi", "--driver", "example.com/disk", "--volume-plugin-dir", n.PluginDir, "--state-dir", n.o.StateDir}, args...)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("install: %v\n%s", err, out)
	}
}

// TestControllerManager: with attach: true, kube-controller-manager has to have
// the driver where it looks.
func TestControllerManager(t *testing.T) {
	testenv.Need(t, "mount")
	program, err := testenv.Program(t.TempDir(), "FLEXDRIVER_BINARY", "../../cmd/flexdriver")
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.short()
	n.install(program, "--attach", "--socket", n.o.Socket, "--controller-socket", "../.controller.sock")
	// There may be others on this machine.
	has := func(id doctor.ID) bool {
		for _, f := range found(n.run(), id) {
			if strings.Contains(f.Found, n.path("kcm")) {
				return true
			}
		}
		return false
	}
	n.start("kube-controller-manager", nil, "--v=2", "--flex-volume-plugin-dir", n.path("kcm"))
	if !has("driver-not-in-controller-manager") {
		t.Error("that the driver is missing was not found")
	}
	if err := os.CopyFS(n.path("kcm"), os.DirFS(n.PluginDir)); err != nil {
		t.Fatal(err)
	}
	if has("driver-not-in-controller-manager") {
		t.Error("the driver is there, and said to be missing")
	}
	if !has("controller-absent") {
		t.Error("controller-absent is missing")
	}
	l, err := net.Listen("unix", n.path("kcm/.controller.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if has("controller-absent") {
		t.Error("controller-absent although a process listens")
	}
}

// TestStaleMounts: mounts that no pod uses, and none is about to use.
func TestStaleMounts(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	old := time.Now().Add(-time.Hour)
	mount := func(dir string, age time.Time) {
		n.mount("source-of-"+filepath.Base(filepath.Dir(dir)), dir, "tmpfs", 0)
		if err := os.Chtimes(filepath.Dir(dir), age, age); err != nil {
			t.Fatal(err)
		}
	}
	staged := func(volume string) string {
		dir := filepath.Join(n.Root, "plugins/kubernetes.io/csi", csiName, volume, "globalmount")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	mount(staged("stale"), old)
	mount(staged("new"), time.Now())
	mount(staged("used"), old)
	n.mount("source-of-used", n.PodVolumeDir("uid-1", "kubernetes.io/csi", "used"), "tmpfs", 0)
	mount(n.DeviceMountPath("example.com/disk", "forgotten"), old)
	mount(n.DeviceMountPath("example.com/tape", "wanted"), old)
	n.mount("none", n.PodVolumeDir("uid-1", "example.com/tape", "wanted"), "tmpfs", 0)
	want(t, n.run(), n.Root+"/plugins/kubernetes.io/",
		"mount-stale csi/"+csiName+"/stale/globalmount", "mount-stale flexvolume/example.com/disk/mounts/forgotten")
}
