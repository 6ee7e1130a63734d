package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	originalName = ".example.com~disk.original"
	vendorFile   = dirName + "/jq" // which the vendor's program needs

	vendorOne = "#!/bin/sh\necho '{\"status\":\"Success\",\"capabilities\":{\"attach\":false}}' # one\n"
	vendorTwo = "#!/bin/sh\necho '{\"status\":\"Success\",\"capabilities\":{\"attach\":false}}' # two\n"
)

// vendorInstalls does what installers of vendors do: it writes into the file.
func vendorInstalls(t *testing.T, o Options, program string) {
	t.Helper()
	dir := filepath.Join(o.PluginDir, dirName)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "disk"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
}

// program is what a file is: one, two, ours, none, or its content.
func program(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	switch ours := which(t, path, testPrograms(t).old, testPrograms(t).new); {
	case errors.Is(err, os.ErrNotExist):
		return "none"
	case err != nil:
		t.Fatal(err)
	case ours == "old" || ours == "new":
		return "ours"
	case string(data) == vendorOne:
		return "one"
	case string(data) == vendorTwo:
		return "two"
	}
	return string(data)
}

// place is what is in the driver's place, and what is kept.
func place(t *testing.T, o Options) string {
	t.Helper()
	return program(t, liveDir(o.PluginDir, o.Driver).executable(current)) + ", kept " + program(t, filepath.Join(o.PluginDir, originalName))
}

func mustRun(t *testing.T, op string, o Options) Report {
	t.Helper()
	report, err := operations()[op](context.Background(), o)
	if err != nil {
		t.Fatalf("%s: %v\n\t%s", op, err, strings.Join(report.Steps, "\n\t"))
	}
	return report
}

// A handOver is one operation in a plugin directory with a vendor's program.
type handOver struct {
	name    string
	prepare []string // "one" and "two" are the vendor's installer, others keys of operations
	op      string
	want    string   // place at its end
	states  []string // places at a kill, besides want and that before
}

func handOvers() []handOver {
	return []handOver{
		{"take its place", []string{"one"}, "install", "ours, kept one", []string{"one, kept one"}},
		{"it was written back", []string{"one", "install", "one"}, "install", "ours, kept one", nil},
		{"another was written over it", []string{"one", "install", "two"}, "install", "ours, kept one", nil},
		{"a newer one after an uninstallation", []string{"one", "install", "uninstall", "two"}, "install", "ours, kept two", []string{"two, kept two"}},
		{"give it back", []string{"one", "install"}, "restore", "one, kept none", nil},
		{"give it back after an uninstallation", []string{"one", "install", "uninstall"}, "restore", "one, kept none", []string{"none, kept none"}},
		{"give it back that is back", []string{"one", "install", "one"}, "restore", "one, kept none", nil},
		{"give it back, and another is there", []string{"one", "install", "two"}, "restore", "two, kept one", nil},
		{"give back nothing", []string{"install"}, "restore", "none, kept none", nil},
		{"uninstall", []string{"one", "install"}, "uninstall", "none, kept one", nil},
		{"uninstall, and it is back", []string{"one", "install", "one"}, "uninstall", "one, kept none", nil},
	}
}

func (s handOver) prepared(t *testing.T) Options {
	t.Helper()
	o := options(t)
	for _, op := range s.prepare {
		switch op {
		case "one":
			vendorInstalls(t, o, vendorOne)
		case "two":
			vendorInstalls(t, o, vendorTwo)
		default:
			mustRun(t, op, o)
		}
	}
	return o
}

// copyOf returns o for a copy of the plugin directory. Hard links stay hard links.
func copyOf(t *testing.T, o Options) Options {
	t.Helper()
	from := o.PluginDir
	o.PluginDir = pluginDir(t)
	if out, err := exec.Command("cp", "-a", from+"/.", o.PluginDir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return o
}

// TestHandOverKilled kills each operation after each change to the disk. What a kubelet
// finds is a whole program, and the vendor's is never lost. The operation, run again,
// ends as if it had not been killed; from there flexdriver can be installed, and the
// vendor's program be given back.
func TestHandOverKilled(t *testing.T) {
	for _, s := range handOvers() {
		t.Run(s.name, func(t *testing.T) {
			prepared := s.prepared(t)
			before := place(t, prepared)
			states := append([]string{before, s.want}, s.states...)
			for after := 1; ; after++ {
				o := copyOf(t, prepared)
				step := runVictim(t, victim{Op: s.op, PluginDir: o.PluginDir, Executable: o.Executable, KillAfter: after})
				at := fmt.Sprintf("killed after %d (%s)", after, step)
				if step == "" {
					if got := place(t, o); got != s.want {
						t.Errorf("%s, want %s", got, s.want)
					}
					t.Logf("killed after each of %d steps", after-1)
					return
				}
				if got := place(t, o); !slices.Contains(states, got) {
					t.Errorf("%s: %s, want one of %q", at, got, states)
				}
				s.checkNotLost(t, at, o)
				again := copyOf(t, o)
				mustRun(t, s.op, again)
				if got := place(t, again); got != s.want {
					t.Errorf("%s, again: %s, want %s", at, got, s.want)
				}
				s.checkTidy(t, at+", again", again)
				s.checkGoOn(t, at, o)
			}
		})
	}
}

// checkNotLost: the vendor's program is somewhere.
func (s handOver) checkNotLost(t *testing.T, at string, o Options) {
	t.Helper()
	if !slices.Contains(s.prepare, "one") {
		return
	}
	files := []string{exeName, originalName, "." + dirName + ".new/disk"}
	if !slices.ContainsFunc(files, func(name string) bool {
		p := program(t, filepath.Join(o.PluginDir, name))
		return p == "one" || p == "two"
	}) {
		t.Errorf("%s: the vendor's program is lost: %q", at, names(t, o))
	}
}

// checkTidy: nothing of an operation is left.
func (s handOver) checkTidy(t *testing.T, at string, o Options) {
	t.Helper()
	for _, name := range names(t, o) {
		if strings.HasSuffix(name, ".new") || strings.HasSuffix(name, ".old") || s.op != "install" && strings.HasPrefix(filepath.Base(name), ".") && name != originalName {
			t.Errorf("%s: %s is left", at, name)
		}
	}
}

// checkGoOn: whatever is done next, the vendor's program can be given back.
func (s handOver) checkGoOn(t *testing.T, at string, o Options) {
	t.Helper()
	for _, then := range [][]string{{"install", "restore"}, {"uninstall", "restore"}} {
		o := copyOf(t, o)
		for _, op := range then {
			mustRun(t, op, o)
		}
		got := program(t, filepath.Join(o.PluginDir, exeName))
		if want := slices.Contains(s.prepare, "one"); want != (got == "one" || got == "two") {
			t.Errorf("%s, then %q: %s is in the place", at, then, got)
		}
	}
}

// TestHandOverFails has each change fail. What fails leaves no less than a kill.
func TestHandOverFails(t *testing.T) {
	for _, s := range handOvers() {
		t.Run(s.name, func(t *testing.T) {
			prepared := s.prepared(t)
			states := append([]string{place(t, prepared), s.want}, s.states...)
			for at := 1; ; at++ {
				o := copyOf(t, prepared)
				step, failed := 0, ""
				failing := o
				failing.afterStep = func(name string) error {
					if step++; step == at {
						failed = name
						return errInjected
					}
					return nil
				}
				_, err := operations()[s.op](context.Background(), failing)
				if failed == "" {
					return
				}
				where := fmt.Sprintf("failed at %d (%s)", at, failed)
				if !errors.Is(err, errInjected) {
					t.Errorf("%s: error %v", where, err)
				}
				if got := place(t, o); !slices.Contains(states, got) {
					t.Errorf("%s: %s, want one of %q", where, got, states)
				}
				s.checkNotLost(t, where, o)
			}
		})
	}
}

// TestHandOverEvents: keeping makes the kubelet run no init, giving back makes it run one,
// and it never forgets the driver in between.
func TestHandOverEvents(t *testing.T) {
	o := options(t)
	vendorInstalls(t, o, vendorOne)
	p := newProber(t, o.PluginDir)
	p.watch(dirName)
	for _, step := range []struct {
		op   string
		want []string
	}{
		{"install", []string{"CREATE " + exeName}},
		{"install", nil},
		{"restore", []string{"CREATE " + exeName}},
		{"restore", nil},
		{"install", []string{"CREATE " + exeName}},
		{"uninstall", []string{"REMOVE " + exeName, "REMOVE " + dirName, "REMOVE " + dirName}},
		{"restore", []string{"CREATE " + dirName}},
	} {
		mustRun(t, step.op, o)
		if got, _ := p.events(); !cmp.Equal(step.want, got) {
			t.Errorf("%s (-want +got):\n%s", step.op, cmp.Diff(step.want, got))
		}
	}
}

// TestRestoreLeavesTheirs: the vendor's other files, the mode and a link stay as they are.
func TestRestoreLeavesTheirs(t *testing.T) {
	o := options(t)
	vendorInstalls(t, o, vendorOne)
	executable := filepath.Join(o.PluginDir, exeName)
	if err := os.Rename(executable, filepath.Join(o.PluginDir, vendorFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("jq", executable); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, o)
	mustRun(t, "restore", o)
	if to, err := os.Readlink(executable); err != nil || to != "jq" {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	if diff := cmp.Diff(sorted(dirName, exeName, vendorFile), names(t, o)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	for _, path := range []string{executable, filepath.Join(o.PluginDir, vendorFile)} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	vendorInstalls(t, o, vendorOne)
	if err := os.Chmod(executable, 0o700); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, o)
	mustRun(t, "restore", o)
	if info, err := os.Lstat(executable); err != nil || info.Mode() != 0o700 {
		t.Errorf("the vendor's program is %v: %v", info.Mode(), err)
	}
}

// TestRestoreMounts: a volume that flexdriver has mounted would be stranded; one that the
// vendor's driver has mounted is its own.
func TestRestoreMounts(t *testing.T) {
	const (
		volume = "50 27 7:0 / /var/lib/kubelet/pods/0b8ee7f6/volumes/example.com~disk/pv rw - ext4 /dev/loop0 rw\n"
		target = "51 27 7:0 / /var/lib/kubelet/pods/0b8ee7f6/flex2csi/volumes/kubernetes.io~csi/pv/mount rw - ext4 /dev/loop0 rw\n"
	)
	for name, tt := range map[string]struct {
		table, op string
		refused   bool
	}{
		"theirs, and their driver comes back": {volume, "restore", false},
		"theirs, and no driver comes":         {volume, "uninstall", true},
		"ours":                                {volume + target, "restore", true},
		"of another pod":                      {volume + strings.Replace(target, "0b8ee7f6", "1c9ff807", 1), "restore", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			vendorInstalls(t, o, vendorOne)
			mustInstall(t, o)
			o.Mountinfo = []string{filepath.Join(t.TempDir(), "mountinfo")}
			if err := os.WriteFile(o.Mountinfo[0], []byte(tt.table), 0o644); err != nil {
				t.Fatal(err)
			}
			o.Restore = tt.op == "restore"
			before := names(t, o)
			removable := Removable(context.Background(), o)
			_, err := Uninstall(context.Background(), o)
			if (err != nil) != tt.refused || (removable != nil) != tt.refused {
				t.Errorf("error %v, announced %v, want %t", err, removable, tt.refused)
			}
			if tt.refused && !cmp.Equal(before, names(t, o)) {
				t.Errorf("refused, and changed (-before +after):\n%s", cmp.Diff(before, names(t, o)))
			}
		})
	}
}

// TestTheirDevices: what the vendor's driver has attached, only it can detach. With a
// configuration of ours next to it, it can also be a marker of flexdriver.
func TestTheirDevices(t *testing.T) {
	const (
		volume = "50 27 7:0 / /var/lib/kubelet/pods/0b8ee7f6/volumes/example.com~disk/pv rw - ext4 /dev/loop0 rw\n"
		device = "51 27 7:0 / /host/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv rw - ext4 /dev/loop0 rw\n"
	)
	for name, tt := range map[string]struct {
		table   string
		ours    bool
		refused bool
	}{
		"nothing":                    {"", false, false},
		"mounted":                    {volume, false, false},
		"attached and mounted":       {volume + device, false, true},
		"of another driver":          {strings.ReplaceAll(device, "/disk/", "/other/"), false, false},
		"flexdriver was overwritten": {device, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			if tt.ours {
				mustInstall(t, o)
			}
			vendorInstalls(t, o, vendorOne)
			o.Mountinfo = []string{filepath.Join(t.TempDir(), "mountinfo")}
			if err := os.WriteFile(o.Mountinfo[0], []byte(tt.table), 0o644); err != nil {
				t.Fatal(err)
			}
			before := names(t, o)
			_, err := Install(context.Background(), o)
			if (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), "disk/mounts/pv") {
				t.Errorf("error %v, want %t", err, tt.refused)
			}
			if want := "ours, kept one"; !tt.refused && place(t, o) != want {
				t.Errorf("%s, want %s", place(t, o), want)
			}
			if tt.refused && !cmp.Equal(before, names(t, o)) {
				t.Errorf("refused, and changed (-before +after):\n%s", cmp.Diff(before, names(t, o)))
			}
		})
	}
}

// TestRestorable: only a vendor's program can be given back.
func TestRestorable(t *testing.T) {
	for _, s := range handOvers() {
		o := s.prepared(t)
		err := Restorable(o.PluginDir, o.Driver)
		if want := slices.Contains(s.prepare, "one"); (err == nil) != want || !want && !strings.Contains(err.Error(), "no program was kept") {
			t.Errorf("%s: after %q: %v", s.name, s.prepare, err)
		}
	}
}

// TestIsOurs: also where the mark is on the border of two reads.
func TestIsOurs(t *testing.T) {
	for _, ours := range []string{testPrograms(t).old, testPrograms(t).new} {
		if is, err := IsOurs(ours); !is || err != nil {
			t.Errorf("%s: %t, %v", ours, is, err)
		}
	}
	file := filepath.Join(t.TempDir(), "program")
	for before := 256<<10 - len(ourModule) - 1; before < 256<<10+1; before++ {
		for text, want := range map[string]bool{ourModule + "cmd/flexdriver\n": true, "path\texample.com/driver\ndep\tgithub.com/flex2csi/flex2csi/v2\n": false} {
			if err := os.WriteFile(file, append(make([]byte, before), text...), 0o755); err != nil {
				t.Fatal(err)
			}
			if is, err := IsOurs(file); is != want || err != nil {
				t.Errorf("%q after %d bytes: %t, %v", text, before, is, err)
			}
		}
	}
	if is, err := IsOurs(filepath.Dir(file)); is || err != nil {
		t.Errorf("a directory: %t, %v", is, err)
	}
}
