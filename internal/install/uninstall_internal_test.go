package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestUninstallRefusesWhileMounted uses the mount table of a node; the kubelet's
// directory is not the usual one.
func TestUninstallRefusesWhileMounted(t *testing.T) {
	const pod = `/var/lib/k0s/kubelet/pods/0b8ee7f6/volumes/example.com~disk/pv\0401`
	const device = `/var/lib/k0s/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv1`
	const others = `22 27 0:21 / /proc rw,relatime - proc proc rw
40 27 7:1 / /var/lib/kubelet/pods/1/volumes/example.com~diskette/pv rw - ext4 /dev/loop1 rw
41 27 7:1 / /var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/diskette/mounts/pv rw - ext4 /dev/loop1 rw
42 27 7:1 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/example.com~disk/mount rw - ext4 /dev/loop1 rw
`
	o := options(t)
	mustInstall(t, o)
	table := filepath.Join(t.TempDir(), "mountinfo")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(others + "50 27 7:0 / " + pod + " rw shared:3 - ext4 /dev/loop0 rw\n51 27 7:0 / " + device + " rw - ext4 /dev/loop0 rw\n")
	o.Mountinfo = []string{"/nonexistent", table, table}

	_, err := Uninstall(context.Background(), o)
	if err == nil {
		t.Fatal("uninstalled")
	}
	for _, want := range []string{"volumes of it are mounted (2: ", strings.ReplaceAll(pod, `\040`, " "), device, "force"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if got := state(t, o); got != "old/old" {
		t.Errorf("the driver is %s", got)
	}

	forced := o
	forced.Force = true
	report, err := Uninstall(context.Background(), forced)
	if err != nil {
		t.Fatal(err)
	}
	if warnings := warnings(report); len(warnings) != 1 || !strings.Contains(warnings[0], device) {
		t.Errorf("warnings %q do not name the mounts", warnings)
	}
	if got := names(t, o); len(got) > 0 {
		t.Errorf("left %q", got)
	}

	mustInstall(t, o)
	write(others)
	if _, err := Uninstall(context.Background(), o); err != nil {
		t.Error(err)
	}
	mustInstall(t, o)
	o.Mountinfo = []string{"/nonexistent", "/nonexistent/either"}
	if _, err := Uninstall(context.Background(), o); err == nil || !strings.Contains(err.Error(), "which volumes are mounted") {
		t.Errorf("without a mount table: error %v", err)
	}
}

// TestUninstallSeesRealMounts: by default the mounts are those of this process.
func TestUninstallSeesRealMounts(t *testing.T) {
	testenv.Need(t, "mount")
	o := options(t)
	mustInstall(t, o)
	o.Mountinfo = nil
	volume := filepath.Join(pluginDir(t), "pods/0b8ee7f6/volumes/example.com~disk/pv1")
	if err := os.MkdirAll(volume, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", volume, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	_, err := Uninstall(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), volume) {
		t.Errorf("error %v does not name %s", err, volume)
	}
	if err := unix.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Uninstall(context.Background(), o); err != nil {
		t.Error(err)
	}
}

func TestUninstallForeignFiles(t *testing.T) {
	o := options(t)
	mustInstall(t, o)
	for _, name := range []string{"jq", ".cache/x"} {
		path := filepath.Join(o.PluginDir, dirName, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(o.PluginDir, dirName, ".cache/link")); err != nil {
		t.Fatal(err)
	}
	_, err := Uninstall(context.Background(), o)
	if err == nil || !strings.Contains(err.Error(), dirName+"/.cache, ") || !strings.Contains(err.Error(), dirName+"/jq") {
		t.Errorf("error %v does not name the files", err)
	}
	if got := state(t, o); got != "old/old" {
		t.Errorf("the driver is %s", got)
	}

	o.Force = true
	inside := filepath.Join(o.PluginDir, dirName, ".cache")
	o.Mountinfo = []string{filepath.Join(t.TempDir(), "mountinfo")}
	if err := os.WriteFile(o.Mountinfo[0], []byte("1 2 0:1 / "+inside+" rw - tmpfs none rw\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Uninstall(context.Background(), o); err == nil || !strings.Contains(err.Error(), "unmount it first") {
		t.Errorf("deletes across mounts: %v", err)
	}
	o.Mountinfo = []string{os.DevNull}
	if _, err := Uninstall(context.Background(), o); err != nil {
		t.Error(err)
	}
	if got := names(t, o); len(got) > 0 {
		t.Errorf("left %q", got)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("followed a link: %v", err)
	}
}

// TestUninstallNotes: what internal/local notes in the control plane goes with
// the driver, but not while it says that a volume is attached.
func TestUninstallNotes(t *testing.T) {
	o := options(t)
	mustInstall(t, o)
	note := filepath.Join(o.PluginDir, dirName, ".attached-0b8ee7f6.json")
	for _, path := range []string{note, filepath.Join(o.PluginDir, dirName, ".attached-lock")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Uninstall(context.Background(), o); err == nil || !strings.Contains(err.Error(), "volumes of it are attached (1, noted in "+note) {
		t.Errorf("error %v does not name %s", err, note)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(note, long, long); err != nil {
		t.Fatal(err)
	}
	if _, err := Uninstall(context.Background(), o); err != nil {
		t.Error(err)
	}
	if got := names(t, o); len(got) > 0 {
		t.Errorf("left %q", got)
	}
}

func TestList(t *testing.T) {
	if got, want := list(strings.Split("abcdefghijkl", "")), "a, b, c, d, e, f, g, h, i, j and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUninstallOddTable: a table of mounts that cannot be read to its end may have a volume,
// although another one is whole.
func TestUninstallOddTable(t *testing.T) {
	for _, line := range []string{"garbage\n", "60 27 0:5 / /x rw - fuse\n"} {
		o := options(t)
		mustInstall(t, o)
		dir := t.TempDir()
		self, host := filepath.Join(dir, "self"), filepath.Join(dir, "host")
		for file, text := range map[string]string{
			self: "22 27 0:21 / /proc rw,relatime - proc proc rw\n",
			host: "50 27 7:0 / /var/lib/kubelet/pods/1/volumes/example.com~disk/pv rw - ext4 /dev/loop0 rw\n" + line,
		} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o.Mountinfo = []string{self, host}
		if _, err := Uninstall(t.Context(), o); err == nil {
			t.Errorf("%q: uninstalled while a volume is mounted", line)
		}
	}
}
