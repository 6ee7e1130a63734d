package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestScript runs the scripts in testdata/script, each of which shows one
// behaviour of the program as its caller sees it. testdata/script/README.md
// says how they are written.
func TestScript(t *testing.T) {
	layOverSbin(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		Setup:              setUpScript,
		Condition:          testenv.Condition,
		Cmds:               scriptCommands(),
		RequireUniqueNames: true,
	})
}

// layOverSbin makes /sbin writable for the scripts that bring a mount helper:
// mount(8) looks for them there and nowhere else. It does so in the private
// mount namespace of the tests, if there is one; the scripts see to that.
func layOverSbin(t *testing.T) {
	t.Helper()
	sbin, err := filepath.EvalSymlinks("/sbin")
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := testenv.Condition("mount"); !ok || err != nil || os.Getuid() != 0 {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("sbin", dir, "tmpfs", 0, "mode=0755"); err != nil { // the directory may be an overlay itself
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("overlay", sbin, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", sbin, upper, work)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(sbin, unix.MNT_DETACH) })
}

// csiConfig is the configuration of a driver with the backend csi.
func csiConfig(socket, stateDir string) string {
	return fmt.Sprintf(`{
  "apiVersion": "flex2csi.io/v1alpha1",
  "kind": "FlexDriverConfiguration",
  "backend": "csi",
  "driver": "example.com/disk",
  "socket": %q,
  "stateDir": %q
}
`, socket, stateDir)
}

// scriptConfig allows what the scripts use. dir has the images of a namespace.
func scriptConfig(dir string) string {
	return fmt.Sprintf(`{
  "apiVersion": "flex2csi.io/v1alpha1",
  "kind": "FlexDriverConfiguration",
  "backend": "local",
  "driver": "example.com/disk",
  "imageRoots": [%q],
  "deviceRoots": ["/dev", %q],
  "sourceTypes": ["cifs", "smb3", "ceph", "nfs", "lustre", "fuse.flextest", "fuse.noisyfs", "fuse.liefs"]
}
`, filepath.Dir(dir), dir)
}

// setUpScript lays out a node in $WORK: a kubelet's directory with those that
// a kubelet makes before it calls, and the driver in the plugin directory. It
// is first in PATH, so that a script which executes "disk" calls it by its full
// path, as a kubelet does.
func setUpScript(e *testscript.Env) error {
	kubelet := filepath.Join(e.WorkDir, "kubelet")
	plugins := filepath.Join(e.WorkDir, "plugins")
	driver := filepath.Join(plugins, "example.com~disk")
	global := filepath.Join(kubelet, "plugins/kubernetes.io/flexvolume/example.com/disk/mounts/data")
	pod := func(uid string) string {
		return filepath.Join(kubelet, "pods", uid, "volumes/example.com~disk/data")
	}
	for _, dir := range []string{driver, global, pod("1"), pod("2"), pod("3")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	binary := os.Getenv(envBinary)
	if err := os.Symlink(binary, filepath.Join(driver, "disk")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(driver, ".flexdriver.json"), []byte(scriptConfig(e.WorkDir)), 0o644); err != nil {
		return err
	}
	e.Setenv("PATH", strings.Join([]string{driver, filepath.Dir(binary), os.Getenv("PATH"), "/usr/sbin", "/sbin"}, ":"))
	e.Setenv("KUBELET", kubelet)
	e.Setenv("NAMESPACE", filepath.Base(e.WorkDir))
	e.Setenv("ROOT", filepath.Dir(e.WorkDir))
	e.Setenv("PLUGINS", plugins)
	e.Setenv("DRIVER", driver)
	e.Setenv("GLOBAL", global)
	e.Setenv("POD1", pod("1"))
	e.Setenv("POD2", pod("2"))
	e.Setenv("POD3", pod("3"))

	tb, ok := e.T().(testing.TB)
	if !ok {
		return fmt.Errorf("%T is no testing.TB", e.T())
	}
	testenv.LeakCheck(endOfScript{tb, e}, e.WorkDir)
	setUpBridge(e)
	return nil
}

// endOfScript cleans up before testscript removes $WORK, not after it: what is
// still mounted there would be emptied.
type endOfScript struct {
	testing.TB
	env *testscript.Env
}

func (e endOfScript) Cleanup(f func()) { e.env.Defer(f) }

// TestScriptsLookAtEveryAnswer checks the rules of scripts: a title, the command in the
// name, and after each call a check of both streams.
func TestScriptsLookAtEveryAnswer(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	commands := []string{"unknown", "help", "install", "uninstall", "version"}
	for _, c := range flex.Commands() {
		commands = append(commands, string(c))
	}
	for _, file := range files {
		command, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".txtar"), "_")
		if !slices.Contains(commands, command) {
			t.Errorf("%s: the name does not begin with a command", file)
		}
		for _, fault := range faultsOfScript(t, file) {
			t.Errorf("%s:%s", file, fault)
		}
	}
}

func faultsOfScript(t *testing.T, file string) (faults []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	call, stdout, stderr := 0, true, true
	end := func() {
		if !stdout || !stderr {
			faults = append(faults, fmt.Sprintf("%d: nothing looks at both stdout and stderr of this call", call))
		}
	}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan() && !strings.HasPrefix(lines.Text(), "-- "); n++ {
		line := lines.Text()
		if n == 1 && !strings.HasPrefix(line, "# ") {
			faults = append(faults, "1: there is no title")
		}
		switch {
		case isCall(line):
			end()
			call, stdout, stderr = n, false, false
		case strings.HasPrefix(line, "answer "), strings.Contains(line, "stdout"):
			stdout = true
		case strings.Contains(line, "stderr"):
			stderr = true
		}
	}
	end()
	return faults
}

// isCall finds calls with output for the script. Background calls return it with wait.
func isCall(line string) bool {
	words := strings.Fields(strings.TrimPrefix(line, "! "))
	if len(words) > 0 && strings.HasPrefix(words[0], "[") {
		words = words[1:]
	}
	if len(words) < 2 || strings.HasSuffix(line, "&") {
		return len(words) > 0 && words[0] == "wait"
	}
	return (words[0] == "exec" || words[0] == "terminal") && (words[1] == "disk" || words[1] == "flexdriver" || strings.HasSuffix(words[1], "/disk"))
}
