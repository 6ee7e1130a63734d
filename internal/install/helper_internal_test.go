package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestMain also is the main of the processes that the tests start.
func TestMain(m *testing.M) {
	switch {
	case os.Getenv(envInstaller) != "":
		os.Exit(installerMain())
	case os.Getenv(envCaller) != "":
		os.Exit(callerMain())
	}
	testenv.Main(withTempDir{m})
}

// withTempDir gives the test binary a directory for what all tests share, and
// where it can mount has all temporary directories in memory: each installation
// waits for the disk several times.
type withTempDir struct{ m testenv.TestingM }

const (
	envTempDir = "FLEXDRIVER_TEST_DIR"
	envDiskDir = "FLEXDRIVER_TEST_DISK_DIR"
)

func (w withTempDir) Run() int {
	disk, err := os.MkdirTemp("", "flexdriver-install-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(disk)
	dir := filepath.Join(disk, "memory")
	if err := os.Mkdir(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if unix.Mount("none", dir, "tmpfs", 0, "") == nil {
		os.Setenv("TMPDIR", dir)
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	}
	os.Setenv(envTempDir, dir)
	os.Setenv(envDiskDir, disk)
	return w.m.Run()
}

func disk() driverconfig.DriverName {
	return driverconfig.DriverName{Vendor: "example.com", Name: "disk"}
}

// Two versions of everything.
func oldConfig() *driverconfig.Configuration {
	return driverconfig.Default(disk(), driverconfig.BackendLocal)
}

func newConfig() *driverconfig.Configuration {
	c := driverconfig.Default(disk(), driverconfig.BackendLocal)
	c.Capabilities.SELinuxRelabel = false
	c.DirectoryRoots = []string{"/srv/shared"}
	return c
}

// programs are executables to install, made once per test binary.
type programs struct{ old, new string }

var build = sync.OnceValues(func() (programs, error) {
	dir := os.Getenv(envTempDir)
	p := programs{old: filepath.Join(dir, "old"), new: filepath.Join(dir, "new")}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", p.old, "./testdata/driver")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return programs{}, fmt.Errorf("%w: %s", err, out)
	}
	data, err := os.ReadFile(p.old)
	if err != nil {
		return programs{}, err
	}
	// The loader does not look at what follows the segments.
	return p, os.WriteFile(p.new, append(data, "new version"...), 0o755)
})

func testPrograms(t testing.TB) programs {
	t.Helper()
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// script writes a driver in the shell, for what no proper driver does.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "driver.sh")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// pluginDir is a directory without symbolic links in its path.
func pluginDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// options are those of an installation into a directory of its own, with no
// mounts in sight.
func options(t *testing.T) Options {
	t.Helper()
	return Options{
		PluginDir:  pluginDir(t),
		Driver:     disk(),
		Executable: testPrograms(t).old,
		Config:     oldConfig(),
		Mountinfo:  []string{os.DevNull},
	}
}

// updated returns o with the new version of everything.
func updated(t *testing.T, o Options) Options {
	o.Executable, o.Config = testPrograms(t).new, newConfig()
	return o
}

func mustInstall(t *testing.T, o Options) Report {
	t.Helper()
	report, err := Install(context.Background(), o)
	if err != nil {
		t.Fatalf("%v\nsteps: %s", err, strings.Join(report.Steps, "\n       "))
	}
	return report
}

// state is what a kubelet sees of the driver, in words: "absent", "old/old" for
// the executable and the configuration, and so on.
func state(t *testing.T, o Options) string {
	t.Helper()
	dir := liveDir(o.PluginDir, o.Driver)
	if info, _ := lstat(dir.path); info == nil {
		return "absent"
	}
	return which(t, dir.executable(current), testPrograms(t).old, testPrograms(t).new) + "/" + whichConfig(t, dir.config(current))
}

func which(t *testing.T, path, old, new string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "none"
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"old": old, "new": new} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) == string(data) {
			return name
		}
	}
	return "other"
}

func whichConfig(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	old, new := filepath.Join(dir, "old"), filepath.Join(dir, "new")
	for file, c := range map[string]*driverconfig.Configuration{old: oldConfig(), new: newConfig()} {
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return which(t, path, old, new)
}

// names are all names below the plugin directory.
func names(t *testing.T, o Options) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(o.PluginDir, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(o.PluginDir, path); rel != "." {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const (
	dirName  = "example.com~disk"
	exeName  = dirName + "/disk"
	confName = dirName + "/.flexdriver.json"
)

func sorted(names ...string) []string { return slices.Sorted(slices.Values(names)) }

// kubeletInit is what the kubelet does with a driver: one string of output for
// both streams, and of it exactly one JSON object with the status Success
// (pkg/volume/flexvolume/driver-call.go, Run).
func kubeletInit(path string) (flex.Capabilities, error) {
	output, err := exec.Command(path, "init").CombinedOutput()
	if err != nil {
		return flex.Capabilities{}, fmt.Errorf("%w: %s", err, output)
	}
	var answer struct {
		Status       string
		Capabilities *flex.Capabilities
	}
	if err := json.Unmarshal(output, &answer); err != nil {
		return flex.Capabilities{}, fmt.Errorf("%w: %s", err, output)
	}
	if answer.Status != "Success" || answer.Capabilities == nil {
		return flex.Capabilities{}, fmt.Errorf("answer %s", output)
	}
	return *answer.Capabilities, nil
}

// child is a command that runs this test binary with one more variable.
func child(t *testing.T, variable string, value any) *exec.Cmd {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), variable+"="+string(data))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

func mountTmpfs(t *testing.T, dir string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", flags, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}
