package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestRefusedOptions(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no driver", func(o *Options) { o.Driver = driverconfig.DriverName{} }, "no driver name given"},
		{"bad driver", func(o *Options) { o.Driver.Name = "../disk" }, `name has '/' in it`},
		{"no executable", func(o *Options) { o.Executable = "" }, "no executable given"},
		{"executable is a directory", func(o *Options) { o.Executable = o.PluginDir }, "is not a program"},
		{"configuration of another driver", func(o *Options) { o.Config.Driver.Name = "tape" }, `the configuration is of driver "example.com/tape"`},
		{"invalid configuration", func(o *Options) { o.Config.KubeletDir = "x" }, "kubeletDir"},
		{"log in the plugin directory", func(o *Options) { o.Config.Log.File = o.PluginDir + "/x.log" }, "makes the kubelet run init"},
		{"relative", func(o *Options) { o.PluginDir = "exec" }, "is not absolute"},
		{"missing", func(o *Options) { o.PluginDir += "/missing" }, "does not exist; it must be the kubelet's --volume-plugin-dir"},
		{"file", func(o *Options) { o.PluginDir = o.Executable }, "is not a directory"},
		{"directory of a driver", func(o *Options) { o.PluginDir += "/" + dirName }, "give the plugin directory above it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			dir := o.PluginDir
			tt.change(&o)
			if _, err := Install(context.Background(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
			o.PluginDir = dir
			if got := names(t, o); len(got) > 0 {
				t.Errorf("left %q", got)
			}
		})
	}
}

// TestSymlinks: a plugin directory may be one (Bottlerocket has that), a driver's
// directory may not, for the kubelet does not see it when it starts.
func TestSymlinks(t *testing.T) {
	o := options(t)
	link := filepath.Join(t.TempDir(), "exec")
	if err := os.Symlink(o.PluginDir, link); err != nil {
		t.Fatal(err)
	}
	linked := o
	linked.PluginDir = link
	if report := mustInstall(t, linked); report.Dir != filepath.Join(o.PluginDir, dirName) {
		t.Errorf("the driver's directory is %s", report.Dir)
	}

	other := options(t)
	if err := os.Symlink(filepath.Join(o.PluginDir, dirName), filepath.Join(other.PluginDir, dirName)); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(context.Context, Options) (Report, error){"install": Install, "uninstall": Uninstall} {
		if _, err := run(context.Background(), other); err == nil || !strings.Contains(err.Error(), "is a symbolic link, which the kubelet ignores") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if got := state(t, o); got != "old/old" {
		t.Errorf("the driver behind the link is %s now", got)
	}

	// An executable that is a link is replaced, not followed.
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(o.PluginDir, exeName)
	if err := errors.Join(os.Remove(exe), os.Symlink(target, exe)); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, o)
	if got, _ := os.ReadFile(target); string(got) != "#!/bin/sh\n" {
		t.Error("wrote through the symbolic link")
	}
}

// TestBadFileSystems: a file system from which the kubelet could start no program, or
// that is read-only, is refused with a message that says what to do.
func TestBadFileSystems(t *testing.T) {
	testenv.Need(t, "mount")
	tests := []struct {
		name  string
		flags uintptr
		want  string
	}{
		{"noexec", unix.MS_NOEXEC, "mounted noexec"},
		{"read-only", unix.MS_RDONLY, "read-only file system"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			mountTmpfs(t, o.PluginDir, tt.flags, "size=16m")
			_, err := Install(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--volume-plugin-dir") {
				t.Errorf("error %v does not say %q and what to do", err, tt.want)
			}
			if got := names(t, o); len(got) > 0 {
				t.Errorf("left %q", got)
			}
		})
	}
}

// TestDiskFull: a full disk is no reason to lose the driver.
func TestDiskFull(t *testing.T) {
	testenv.Need(t, "mount")
	o := options(t)
	info, err := os.Stat(o.Executable)
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size() + info.Size()/2 // room for one, not for two
	mountTmpfs(t, o.PluginDir, 0, fmt.Sprintf("size=%d", size))
	mustInstall(t, o)
	if _, err := Install(context.Background(), updated(t, o)); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want one of no space", err)
	}
	if got := state(t, o); got != "old/old" {
		t.Errorf("the driver is %s", got)
	}
	if diff := cmp.Diff(sorted(dirName, exeName, confName), names(t, o)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
