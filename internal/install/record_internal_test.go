package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const recordName = dirName + "/.installed"

// ofVendor returns o for a program that is not flexdriver.
func ofVendor(o Options, executable string) Options {
	o.Executable, o.Config, o.Recorded = executable, nil, true
	return o
}

// A vendorRun is one operation on a vendor's program in a plugin directory.
type vendorRun struct {
	name string
	// "put one" is Install of vendorOne, "one" is another installer's copy, and others are
	// keys of operations.
	prepare []string
	op      string
	want    string   // place at its end
	states  []string // places at a kill, besides want and that before
	last    string   // what is in the place after a kill and an uninstallation
}

func vendorRuns() []vendorRun {
	return []vendorRun{
		{"first", nil, "put one", "one, kept none", []string{"none, kept none"}, "none"},
		{"again", []string{"put one"}, "put one", "one, kept none", nil, "none"},
		{"another version", []string{"put one"}, "put two", "two, kept none", nil, "none"},
		{"the version before", []string{"put one", "put two"}, "put one", "one, kept none", nil, "none"},
		{"uninstall", []string{"put one", "put two"}, "uninstall", "none, kept none", nil, "none"},
		{"over another's", []string{"one"}, "put two", "two, kept one", []string{"one, kept one"}, "none one"},
		{"the same by another", []string{"one"}, "put one", "one, kept one", nil, "none one"},
		{"another version over another's", []string{"three", "put one"}, "put two", "two, kept three", nil, "none"},
		{"it was overwritten", []string{"one", "put two", "three"}, "put two", "two, kept one", nil, "none three"},
		{"overwritten, and uninstalled", []string{"put one", "two"}, "uninstall", "two, kept none", nil, "two"},
		{"give back", []string{"one", "put two"}, "restore", "one, kept none", nil, "none one"},
	}
}

const vendorThree = "#!/bin/sh\necho '{\"status\":\"Success\"}' # three\n"

func vendorPrograms() map[string]string {
	return map[string]string{"one": vendorOne, "two": vendorTwo, "three": vendorThree}
}

// step does one operation.
func (r vendorRun) step(t *testing.T, o Options, op string) {
	t.Helper()
	if content, ok := vendorPrograms()[op]; ok {
		vendorInstalls(t, o, content)
		return
	}
	key, o := r.resolve(t, o, op)
	mustRun(t, key, o)
}

// resolve returns the key of an operation, and its options.
func (r vendorRun) resolve(t *testing.T, o Options, op string) (string, Options) {
	t.Helper()
	name, put := strings.CutPrefix(op, "put ")
	if !put {
		return op, ofVendor(o, "")
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(vendorPrograms()[name]), 0o755); err != nil {
		t.Fatal(err)
	}
	return "install", ofVendor(o, file)
}

func vendorPlace(t *testing.T, o Options) string {
	t.Helper()
	return strings.ReplaceAll(place(t, o), vendorThree, "three")
}

// TestVendorKilled kills each operation after each change to the disk. A kubelet finds a
// whole program; the operation, run again, ends as if it had not been killed; and an
// uninstallation removes what Install put there, and nothing else.
func TestVendorKilled(t *testing.T) {
	for _, r := range vendorRuns() {
		t.Run(r.name, func(t *testing.T) {
			prepared := options(t)
			for _, op := range r.prepare {
				r.step(t, prepared, op)
			}
			states := append([]string{vendorPlace(t, prepared), r.want}, r.states...)
			for after := 1; ; after++ {
				key, o := r.resolve(t, copyOf(t, prepared), r.op)
				step := runVictim(t, victim{Op: key, PluginDir: o.PluginDir, Executable: o.Executable, Vendor: true, KillAfter: after})
				at := fmt.Sprintf("killed after %d (%s)", after, step)
				if got := vendorPlace(t, o); !slices.Contains(states, got) || step == "" && got != r.want {
					t.Errorf("%s: %s, want one of %q", at, got, states)
				}
				gone := copyOf(t, o)
				mustRun(t, "uninstall", gone)
				r.checkGone(t, at, gone)
				if step == "" {
					t.Logf("killed after each of %d steps", after-1)
					return
				}
				mustRun(t, key, o)
				if got := vendorPlace(t, o); got != r.want {
					t.Errorf("%s, again: %s, want %s", at, got, r.want)
				}
			}
		})
	}
}

// checkGone: nothing of ours is left.
func (r vendorRun) checkGone(t *testing.T, at string, o Options) {
	t.Helper()
	if got, _, _ := strings.Cut(vendorPlace(t, o), ","); !slices.Contains(strings.Fields(r.last), got) {
		t.Errorf("%s, uninstalled: %s is in the place, want %s", at, got, r.last)
	}
	for _, name := range names(t, o) {
		if strings.HasPrefix(filepath.Base(name), ".") && name != originalName {
			t.Errorf("%s, uninstalled: %s is left", at, name)
		}
	}
}

// TestVendorFiles: the program has no configuration.
func TestVendorFiles(t *testing.T) {
	o, r := options(t), vendorRun{}
	r.step(t, o, "put one")
	if diff := cmp.Diff(sorted(dirName, exeName, recordName), names(t, o)); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	r.step(t, o, "put two")
	if diff := cmp.Diff(sorted(dirName, exeName, recordName), names(t, o)); diff != "" {
		t.Errorf("update (-want +got):\n%s", diff)
	}
	key, same := r.resolve(t, o, "put two")
	if report := mustRun(t, key, same); report.Changed {
		t.Errorf("the same again: %q", report.Steps)
	}
}

// TestVendorEvents: the kubelet runs init once for each change, and finds the driver always.
func TestVendorEvents(t *testing.T) {
	o, r := options(t), vendorRun{}
	r.step(t, o, "put one")
	p := newProber(t, o.PluginDir)
	p.watch(dirName)
	for _, step := range []struct {
		op   string
		want []string
	}{
		{"put two", []string{"CREATE " + exeName}},
		{"put two", nil},
		{"put one", []string{"CREATE " + exeName}},
		{"uninstall", []string{"REMOVE " + exeName, "REMOVE " + dirName, "REMOVE " + dirName}},
	} {
		r.step(t, o, step.op)
		if got, _ := p.events(); !cmp.Equal(step.want, got) {
			t.Errorf("%s (-want +got):\n%s", step.op, cmp.Diff(step.want, got))
		}
	}
}

// TestVendorAndFlexdriver: for flexdriver a recorded program is the vendor's like any other.
// It is kept, left and given back; and it does not take flexdriver's place.
func TestVendorAndFlexdriver(t *testing.T) {
	o, r := options(t), vendorRun{}
	r.step(t, o, "put one")
	if mustRun(t, "uninstall", o); vendorPlace(t, o) != "one, kept none" {
		t.Errorf("flex2csi uninstall: %s", vendorPlace(t, o))
	}
	mustInstall(t, o)
	if got := vendorPlace(t, o); got != "ours, kept one" {
		t.Errorf("flexdriver over it: %s", got)
	}
	key, vendor := r.resolve(t, o, "put two")
	if _, err := operations()[key](context.Background(), vendor); err == nil || !strings.Contains(err.Error(), "uninstall it first") {
		t.Errorf("over flexdriver: %v", err)
	}
	mustRun(t, "restore", o)
	if got := vendorPlace(t, o); got != "one, kept none" {
		t.Errorf("given back: %s", got)
	}
	r.step(t, o, "put two") // an update, not another's program
	if got := vendorPlace(t, o); got != "two, kept none" {
		t.Errorf("updated: %s", got)
	}
	r.step(t, o, "uninstall")
	if left := names(t, o); len(left) > 0 {
		t.Errorf("uninstall left %q", left)
	}
}

// TestVendorMounts: an update may come under volumes that are mounted, as the vendor's
// installer before did it; flexdriver may not come under devices, and neither may be removed.
func TestVendorMounts(t *testing.T) {
	const device = "51 27 7:0 / /var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv rw - ext4 /dev/loop0 rw\n"
	o, r := options(t), vendorRun{}
	o.Mountinfo = []string{filepath.Join(t.TempDir(), "mountinfo")}
	if err := os.WriteFile(o.Mountinfo[0], []byte(device), 0o644); err != nil {
		t.Fatal(err)
	}
	vendorInstalls(t, o, vendorThree)
	r.step(t, o, "put one")
	r.step(t, o, "put two")
	before := names(t, o)
	if _, err := Install(context.Background(), o); err == nil || !strings.Contains(err.Error(), "only it can detach") {
		t.Errorf("flexdriver over it: %v", err)
	}
	if _, err := Uninstall(context.Background(), ofVendor(o, "")); err == nil || !strings.Contains(err.Error(), "volumes of it are mounted") {
		t.Errorf("uninstall: %v", err)
	}
	if diff := cmp.Diff(before, names(t, o)); diff != "" {
		t.Errorf("refused, and changed (-before +after):\n%s", diff)
	}
}

// TestVendorDoesNotWork: what is no FlexVolume driver never gets into the place.
func TestVendorDoesNotWork(t *testing.T) {
	for name, body := range map[string]string{
		"no answer":    `:`,
		"no JSON":      `echo Usage: driver`,
		"no status":    `echo '{}'`,
		"two answers":  `echo '{"status":"Success"}{"status":"Success"}'`,
		"failure":      `echo '{"status":"Failure"}'`,
		"exit status":  `echo '{"status":"Success"}'; exit 1`,
		"not in place": `case $0 in */.*) echo '{"status":"Success"}';; *) echo no;; esac`,
	} {
		t.Run(name, func(t *testing.T) {
			o, r := options(t), vendorRun{}
			bad := ofVendor(o, script(t, body))
			if _, err := Install(context.Background(), bad); err == nil {
				t.Error("first: installed")
			}
			if left := names(t, o); len(left) > 0 {
				t.Errorf("first: left %q", left)
			}
			r.step(t, o, "put one")
			if _, err := Install(context.Background(), bad); err == nil {
				t.Error("update: installed")
			}
			r.step(t, o, "uninstall")
			if left := names(t, o); len(left) > 0 {
				t.Errorf("after the update: left %q", left)
			}
		})
	}
}
