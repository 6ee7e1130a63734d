package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const envInstaller = "FLEXDRIVER_TEST_INSTALLER"

// victim is an installer in a process of its own that kills itself.
type victim struct {
	Op         string // a key of operations
	PluginDir  string
	Executable string
	NewConfig  bool
	Vendor     bool // Executable is a vendor's
	KillAfter  int  // number of the step
}

func operations() map[string]func(context.Context, Options) (Report, error) {
	return map[string]func(context.Context, Options) (Report, error){
		"install": Install, "uninstall": Uninstall, "restore": restore,
	}
}

func restore(ctx context.Context, o Options) (Report, error) {
	o.Restore = true
	return Uninstall(ctx, o)
}

func installerMain() int {
	var v victim
	if err := json.Unmarshal([]byte(os.Getenv(envInstaller)), &v); err != nil {
		return 2
	}
	o := Options{PluginDir: v.PluginDir, Driver: disk(), Executable: v.Executable, Config: oldConfig(), Mountinfo: []string{os.DevNull}}
	if v.NewConfig {
		o.Config = newConfig()
	}
	if v.Vendor {
		o = ofVendor(o, v.Executable)
	}
	step := 0
	o.afterStep = func(name string) error {
		if step++; step == v.KillAfter {
			fmt.Print(name)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	if _, err := operations()[v.Op](context.Background(), o); err != nil {
		fmt.Print(err)
		return 1
	}
	return 0
}

// runVictim returns the step after which the process was killed, or "" if it
// came to its end.
func runVictim(t *testing.T, v victim) string {
	t.Helper()
	output, err := child(t, envInstaller, v).Output()
	if err == nil {
		return ""
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("installer to be killed after step %d: %v: %s", v.KillAfter, err, output)
	}
	return string(output)
}

// killScenario is one operation on one state.
type killScenario struct {
	name    string
	prepare []string // versions to install before
	op      string
	version string   // executable/configuration
	states  []string // what may be there after the kill
	final   string   // what is there after the operation was run again
}

func killScenarios() []killScenario {
	return []killScenario{
		{"first install", nil, "install", "new/new", []string{"absent", "new/new"}, "new/new"},
		{"update", []string{"old/old"}, "install", "new/new", []string{"old/old", "old/new", "new/new"}, "new/new"},
		{"update of the configuration", []string{"old/old"}, "install", "old/new", []string{"old/old", "old/new"}, "old/new"},
		{"update of the executable", []string{"old/old"}, "install", "new/old", []string{"old/old", "new/old"}, "new/old"},
		{"second update", []string{"new/new", "old/old"}, "install", "new/new", []string{"old/old", "old/new", "new/new"}, "new/new"},
		{"uninstall", []string{"new/new", "old/old"}, "uninstall", "old/old", []string{"old/old", "old/none", "none/none", "absent"}, "absent"},
	}
}

func (s killScenario) options(t *testing.T, o Options, version string) Options {
	t.Helper()
	executable, config, _ := strings.Cut(version, "/")
	if o.Executable = testPrograms(t).old; executable == "new" {
		o.Executable = testPrograms(t).new
	}
	if o.Config = oldConfig(); config == "new" {
		o.Config = newConfig()
	}
	return o
}

// prepare installs what is to be there before, once for all steps.
func (s killScenario) prepared(t *testing.T) (pluginDir string) {
	t.Helper()
	o := options(t)
	for _, version := range s.prepare {
		mustInstall(t, s.options(t, o, version))
	}
	return o.PluginDir
}

// killed returns the operation on a copy of prepared, after it has been killed
// at the given step. No step means that there are no more.
func (s killScenario) killed(t *testing.T, prepared string, after int) (o Options, step string) {
	t.Helper()
	o = s.copied(t, s.options(t, options(t), s.version), prepared)
	step = runVictim(t, victim{
		Op: s.op, PluginDir: o.PluginDir, Executable: o.Executable,
		NewConfig: strings.HasSuffix(s.version, "/new"), KillAfter: after,
	})
	return o, step
}

// copied returns o for a copy of a plugin directory. Hard links stay hard links:
// they tell how far an update had come.
func (s killScenario) copied(t *testing.T, o Options, from string) Options {
	t.Helper()
	o.PluginDir = pluginDir(t)
	if out, err := exec.Command("cp", "-a", from+"/.", o.PluginDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return o
}

// TestKilledAtEachStep kills an installer with SIGKILL after each change it makes
// to the disk, and shows of each: what is left works and is the old state or the
// new one; the same operation, run again, completes it; uninstalling instead
// leaves nothing.
func TestKilledAtEachStep(t *testing.T) {
	total := 0
	for _, s := range killScenarios() {
		t.Run(s.name, func(t *testing.T) {
			var steps []string
			prepared := s.prepared(t)
			for after := 1; ; after++ {
				o, step := s.killed(t, prepared, after)
				if step == "" {
					break
				}
				steps = append(steps, step+" => "+state(t, o))
				at := fmt.Sprintf("killed after %d (%s)", after, step)
				s.checkLeft(t, at, o)
				s.checkUninstall(t, at, s.copied(t, o, o.PluginDir))
				s.checkAgain(t, at, o)
			}
			total += len(steps)
			t.Logf("killed after each of %d steps:\n\t%s", len(steps), strings.Join(steps, "\n\t"))
		})
	}
	t.Logf("killed %d times, with two ways to go on each", total)
}

// TestFailingAtEachStep has each change to the disk fail, one in each run, and
// shows of each: the driver is what it was before, unless the change came after
// the new one had proven to work; and the same operation, run again, completes it.
// (The change is made, and the error comes after it. For the rename of a first
// installation that would be a lie that no kernel tells: it is left out.)
func TestFailingAtEachStep(t *testing.T) {
	for _, s := range killScenarios() {
		t.Run(s.name, func(t *testing.T) {
			prepared := s.prepared(t)
			for at := 1; ; at++ {
				o := s.copied(t, s.options(t, options(t), s.version), prepared)
				before, failed := state(t, o), ""
				step := 0
				failing := o
				failing.afterStep = func(name string) error {
					if name == "rename .example.com~disk.new to example.com~disk" {
						return nil
					}
					if step++; step == at {
						failed = name
						return errInjected
					}
					return nil
				}
				report, err := operations()[s.op](context.Background(), failing)
				if failed == "" {
					t.Logf("failed at each of %d steps", at-1)
					break
				}
				where := fmt.Sprintf("failed at %d (%s)", at, failed)
				if !errors.Is(err, errInjected) {
					t.Errorf("%s: error %v", where, err)
				}
				got := state(t, o)
				if s.op != "uninstall" && report.Changed != (got != before) {
					t.Errorf("%s: was %s, is %s, but changed is %t", where, before, got, report.Changed)
				}
				if got != before && !slices.Contains([]string{s.version, "old/none", "none/none", "absent"}, got) {
					t.Errorf("%s: was %s, is %s", where, before, got)
				}
				s.checkAgain(t, where, o)
			}
		})
	}
}

var errInjected = errors.New("injected by the test")

// checkLeft: what a kubelet finds works.
func (s killScenario) checkLeft(t *testing.T, at string, o Options) {
	t.Helper()
	got := state(t, o)
	if !slices.Contains(s.states, got) {
		t.Errorf("%s: left %s, want one of %q", at, got, s.states)
	}
	if got == "absent" || strings.HasPrefix(got, "none/") || strings.HasSuffix(got, "/none") {
		return // the test's driver needs its configuration
	}
	caps, err := kubeletInit(liveDir(o.PluginDir, o.Driver).executable(current))
	if err != nil {
		t.Errorf("%s: the driver left does not work: %v", at, err)
	}
	want := oldConfig().Capabilities
	if strings.HasSuffix(got, "/new") {
		want = newConfig().Capabilities
	}
	if caps != want {
		t.Errorf("%s: the driver left answers %+v, want %+v", at, caps, want)
	}
}

// checkAgain: the same operation completes the work.
func (s killScenario) checkAgain(t *testing.T, at string, o Options) {
	t.Helper()
	report, err := operations()[s.op](context.Background(), o)
	if err != nil {
		t.Errorf("%s: again: %v", at, err)
	}
	if got := state(t, o); got != s.final {
		t.Errorf("%s: again: %s, want %s\n\t%s", at, got, s.final, strings.Join(report.Steps, "\n\t"))
	}
	var want []string
	if s.final != "absent" {
		want = sorted(dirName, exeName, confName)
	}
	if diff := cmp.Diff(want, names(t, o)); diff != "" {
		t.Errorf("%s: again: files (-want +got):\n%s", at, diff)
	}
}

func (s killScenario) checkUninstall(t *testing.T, at string, o Options) {
	t.Helper()
	if _, err := Uninstall(context.Background(), o); err != nil {
		t.Errorf("%s: uninstall: %v", at, err)
	}
	if got := names(t, o); len(got) > 0 {
		t.Errorf("%s: uninstall left %q", at, got)
	}
}
