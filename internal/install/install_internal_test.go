package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestInstallLifeCycle(t *testing.T) {
	ctx, o := context.Background(), options(t)
	steps := []struct {
		name    string
		run     func(context.Context, Options) (Report, error)
		options Options
		changed bool
		state   string
		names   []string
	}{
		{"first", Install, o, true, "old/old", sorted(dirName, exeName, confName)},
		{"again", Install, o, false, "old/old", sorted(dirName, exeName, confName)},
		{"update", Install, updated(t, o), true, "new/new", sorted(dirName, exeName, confName)},
		{"update again", Install, updated(t, o), false, "new/new", sorted(dirName, exeName, confName)},
		{"downgrade", Install, o, true, "old/old", sorted(dirName, exeName, confName)},
		{"uninstall", Uninstall, o, true, "absent", nil},
		{"uninstall again", Uninstall, o, false, "absent", nil},
	}
	for _, step := range steps {
		report, err := step.run(ctx, step.options)
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		t.Logf("%s:\n\t%s", step.name, strings.Join(report.Steps, "\n\t"))
		if report.Changed != step.changed {
			t.Errorf("%s: changed is %t, want %t", step.name, report.Changed, step.changed)
		}
		if got := state(t, o); got != step.state {
			t.Errorf("%s: the driver is %s, want %s", step.name, got, step.state)
		}
		if diff := cmp.Diff(step.names, names(t, o)); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", step.name, diff)
		}
		if warnings := warnings(report); len(warnings) > 0 {
			t.Errorf("%s: warnings %q", step.name, warnings)
		}
	}
}

// warnings are those of a report, without those that say that the machine is busy.
func warnings(r Report) []string {
	return slices.DeleteFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, Warning+"init took ") })
}

func TestInstallModes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	o := options(t)
	mustInstall(t, o)
	mustInstall(t, updated(t, o))
	for name, want := range map[string]os.FileMode{dirName: 0o755 | os.ModeDir, exeName: 0o755, confName: 0o644} {
		info, err := os.Lstat(filepath.Join(o.PluginDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}
	// A mode that was changed is corrected.
	if err := os.Chmod(filepath.Join(o.PluginDir, exeName), 0o644); err != nil {
		t.Fatal(err)
	}
	if report := mustInstall(t, updated(t, o)); !report.Changed {
		t.Error("an executable that cannot be executed counts as installed")
	}
}

// TestInstallReplacesForeignDriver: the usual way to this project is from another
// driver of the same name.
func TestInstallReplacesForeignDriver(t *testing.T) {
	o := options(t)
	foreign, err := os.ReadFile(script(t, `echo '{"status":"Success","capabilities":{"attach":false}}'`))
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(o.PluginDir, exeName)
	if err := os.Mkdir(filepath.Dir(target), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, foreign, 0o755); err != nil {
		t.Fatal(err)
	}

	mustInstall(t, o)
	if got := state(t, o); got != "old/old" {
		t.Fatalf("after install the driver is %s", got)
	}
	mustRun(t, "restore", o)
	if got, _ := os.ReadFile(target); string(got) != string(foreign) {
		t.Error("restore did not bring the foreign driver back")
	}
}

// TestInstallDoesNotWork: drivers that the kubelet would not accept are refused,
// and what was there is there again.
func TestInstallDoesNotWork(t *testing.T) {
	const good = `echo '{"status":"Success","capabilities":{"attach":false,"selinuxRelabel":true,"fsGroup":false,"supportsMetrics":true,"requiresFSResize":true}}'`
	tests := []struct {
		name, script, want string
	}{
		{"no JSON", `echo usage: driver`, "not one JSON object"},
		{"nothing", `:`, "said nothing"},
		{"standard error", good + `; echo warning >&2`, "not one JSON object"},
		{"two objects", good + `; ` + good, "not one JSON object"},
		{"failure", `echo '{"status":"Failure","message":"no disk today"}'`, "no disk today"},
		{"success in lower case", `echo '{"status":"success"}'`, `status is "success", not "Success"`},
		{"null capabilities", `echo '{"status":"Success","capabilities":null}'`, "would crash the kubelet"},
		{"exit status", good + `; exit 3`, "exit status 3"},
		{"killed", `kill -9 $$`, "signal: killed"},
		{"too slow", `sleep 60`, "no answer after 300ms"},
		{"child holds the output", good + `; sleep 60 &`, "no answer after 300ms"},
		{
			"other capabilities, but only in place",
			`case $0 in */.executable.new) ` + good + `;; *) echo '{"status":"Success","capabilities":{"attach":true}}';; esac`,
			"is the executable another version",
		},
		{"fails, but only in place", `case $0 in */.executable.new) ` + good + `;; esac`, "said nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			o.VerifyTimeout = 300 * time.Millisecond
			bad := o
			bad.Executable = script(t, tt.script)

			report, err := Install(context.Background(), bad)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("first install: error %v does not say %q", err, tt.want)
			}
			if got := names(t, o); len(got) > 0 || report.Changed {
				t.Errorf("first install left %q, changed %t", got, report.Changed)
			}

			o.VerifyTimeout = 0
			mustInstall(t, o)
			bad.Config = newConfig()
			report, err = Install(context.Background(), bad)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("update: error %v does not say %q", err, tt.want)
			}
			if got := state(t, o); got != "old/old" || report.Changed {
				t.Errorf("after the update the driver is %s, changed %t", got, report.Changed)
			}
			if diff := cmp.Diff(sorted(dirName, exeName, confName), names(t, o)); diff != "" {
				t.Errorf("files after the update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInstallNoProgram(t *testing.T) {
	tests := []struct {
		name string
		data string
		want string
	}{
		{"empty", "", "is not a program"},
		{"text", "hello", "built for another processor, or no program"},
		{"interpreter missing", "#!/nonexistent/sh\n", "its loader is not here"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t)
			o.Executable = filepath.Join(t.TempDir(), "program")
			if err := os.WriteFile(o.Executable, []byte(tt.data), 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := Install(context.Background(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not say %q", err, tt.want)
			}
			if got := names(t, o); len(got) > 0 {
				t.Errorf("left %q", got)
			}
		})
	}
}

// TestEarlierRelease: what an installer of an earlier release kept goes with the next
// update, or with the driver.
func TestEarlierRelease(t *testing.T) {
	for _, op := range []string{"install", "uninstall"} {
		o := options(t)
		mustInstall(t, o)
		for name, kept := range map[string]string{exeName: dirName + "/.executable.prev", confName: confName + ".prev"} {
			if err := os.Link(filepath.Join(o.PluginDir, name), filepath.Join(o.PluginDir, kept)); err != nil {
				t.Fatal(err)
			}
		}
		mustRun(t, op, updated(t, o))
		for _, name := range names(t, o) {
			if strings.HasSuffix(name, ".prev") {
				t.Errorf("%s left %s", op, name)
			}
		}
	}
}

// TestInterrupted: a signal while init runs in place undoes the update.
func TestInterrupted(t *testing.T) {
	o := options(t)
	mustInstall(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	bad := updated(t, o)
	bad.afterStep = func(step string) error {
		if step == "rename .executable.new to disk" {
			cancel()
		}
		return nil
	}
	if _, err := Install(ctx, bad); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want canceled", err)
	}
	if got := state(t, o); got != "old/old" {
		t.Errorf("the driver is %s", got)
	}
}

func TestLock(t *testing.T) {
	o := options(t)
	other, err := hostfile.WaitDirLock(context.Background(), o.PluginDir)
	if err != nil {
		t.Fatal(err)
	}
	o.LockTimeout = 50 * time.Millisecond
	if _, err := Install(context.Background(), o); err == nil || !strings.Contains(err.Error(), "another installer is at work") {
		t.Errorf("error %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { other.Close() })
	o.LockTimeout = 0
	mustInstall(t, o)
}

func TestWorldWritable(t *testing.T) {
	o := options(t)
	if err := os.Chmod(o.PluginDir, 0o777); err != nil {
		t.Fatal(err)
	}
	if warnings := warnings(mustInstall(t, o)); len(warnings) != 1 || !strings.Contains(warnings[0], "programs as root") {
		t.Errorf("warnings %q", warnings)
	}
}

// TestCloneCopies: where there are no hard links, here from one file system to
// another, the earlier version is kept as a copy.
func TestCloneCopies(t *testing.T) {
	testenv.Need(t, "mount")
	other, here := pluginDir(t), pluginDir(t)
	mountTmpfs(t, other, 0, "size=1m")
	from, to := filepath.Join(other, "from"), filepath.Join(here, "to")
	if err := os.WriteFile(from, []byte("content"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (files{after: func(string) error { return nil }}).clone(from, to); err != nil {
		t.Fatal(err)
	}
	if same, err := hasContent(to, []byte("content"), 0o755); !same || err != nil {
		t.Errorf("the copy differs: %v", err)
	}
}
