package contract

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/volume"
)

func (n *node) dotFile() string {
	return filepath.Join(filepath.Dir(n.executable()), ".flexdriver.json")
}

// TestInitNamesAllCapabilitiesWhateverIsMissing: a failing init at start-up
// leaves the driver unregistered until a file changes in its directory, and a
// capability that is not named has a default of the kubelet's.
func TestInitNamesAllCapabilitiesWhateverIsMissing(t *testing.T) {
	replace := func(body string) func(*node) {
		return func(n *node) { n.must(os.WriteFile(n.dotFile(), []byte(body), 0o600)) }
	}
	remove := func(n *node) { n.must(os.Remove(n.dotFile())) }
	tests := map[string]struct {
		edit func(*node)
		wrap wrapper
	}{
		"no configuration":      {edit: remove},
		"empty configuration":   {edit: replace("")},
		"broken configuration":  {edit: replace(`{"apiVersion":`)},
		"foreign configuration": {edit: replace(`{"apiVersion":"v1","kind":"Pod"}`)},
		"null capabilities":     {edit: replace(`{"apiVersion":"flex2csi.io/v1alpha1","kind":"FlexDriverConfiguration","capabilities":null}`)},
		"configuration is a directory": {edit: func(n *node) {
			remove(n)
			n.must(os.Mkdir(n.dotFile(), 0o755))
		}},
		"configuration is a pipe": {edit: func(n *node) {
			remove(n)
			n.must(unix.Mkfifo(n.dotFile(), 0o600))
		}},
		"read-only root and no /run": {wrap: inRole("barren")},
		"nothing but the binary":     {wrap: inRole("empty-root")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := emptyNode(t)
			n.installByHand(false)
			if test.edit != nil {
				test.edit(n)
			}
			n.runner.wrapped("init", test.wrap, n.start)
			n.plugin() // registered
			got := n.runner.last(t, "init").answer(t).Capabilities
			for _, name := range []string{"attach", "selinuxRelabel", "fsGroup", "supportsMetrics", "requiresFSResize"} {
				if _, ok := got[name]; !ok {
					t.Errorf("init does not name the capability %s: %v", name, got)
				}
			}
			if got["attach"] || !got["requiresFSResize"] {
				t.Errorf("init names %v, want attach false and requiresFSResize true", got)
			}
		})
	}
}

// TestInitOpensNoSocketTakesNoLockAndWritesNothing: it runs under the mutex of
// the volume plugin manager, so that what blocks it blocks every volume.
func TestInitOpensNoSocketTakesNoLockAndWritesNothing(t *testing.T) {
	need(t, "strace")
	for _, k := range disks() {
		t.Run(k.name, func(t *testing.T) {
			n := emptyNode(t)
			n.installByHand(false, k.edits(n)...)
			testInitTouchesNothing(n)
		})
	}
}

func testInitTouchesNothing(n *node) {
	n.t.Helper()
	trace := filepath.Join(n.work, "trace")
	n.runner.wrapped("init", func(argv []string) []string {
		return append([]string{"strace", "-f", "-o", trace, "-e", "trace=network,flock,fcntl,file"}, argv...)
	}, n.start)
	body, err := os.ReadFile(trace)
	n.must(err)
	if !strings.Contains(string(body), "openat(") {
		n.t.Fatalf("the trace is empty:\n%s", body)
	}
	if a := n.runner.last(n.t, "init").answer(n.t); a.Status != "Success" || len(a.Capabilities) != 5 {
		n.t.Errorf("init answered %+v", a)
	}
	forbidden := []string{"socket(", "connect(", "flock(", "F_SETLK", "F_OFD_SETLK", "O_CREAT", "unlink", "rename", "mkdir"}
	for line := range strings.Lines(string(body)) {
		writes := strings.Contains(line, "open") && (strings.Contains(line, "O_WRONLY") || strings.Contains(line, "O_RDWR"))
		bad := slices.ContainsFunc(forbidden, func(f string) bool { return strings.Contains(line, f) })
		if bad || writes && !strings.Contains(line, `"/dev/null"`) {
			n.t.Errorf("init does %s", line)
		}
	}
}

// TestInitWaitsForNobodysLock holds every lock that init could want.
func TestInitWaitsForNobodysLock(t *testing.T) {
	n := emptyNode(t)
	n.installByHand(false)
	for _, name := range []string{n.executable(), n.dotFile(), filepath.Dir(n.executable())} {
		f, err := os.Open(name)
		n.must(err)
		defer f.Close()
		n.must(unix.Flock(int(f.Fd()), unix.LOCK_EX))
	}
	n.start()
	n.plugin()
	if c := n.runner.last(t, "init"); c.end.Sub(c.start) > 5*time.Second {
		t.Errorf("init took %v", c.end.Sub(c.start))
	}
}

// TestVolumeNameIsAlwaysAnswered: the kubelet ignores the name, but a Failure
// fails nearly every operation, also after a restart, when it knows no options.
func TestVolumeNameIsAlwaysAnswered(t *testing.T) {
	forDisks(t, bothModes(), func(t *testing.T, n *node, v *vol) {
		bare, err := reconstruct(n.plugin(), "pv-1", v.dir(newPod("a")))
		n.must(err)
		for _, spec := range []*volume.Spec{bare, v.spec, v.spec} {
			if name, err := n.plugin().GetVolumeName(spec); err != nil || name != "pv-1" {
				t.Errorf("volume name %q, %v; want pv-1", name, err)
			}
		}
		calls := n.runner.made("getvolumename")
		if a := calls[0].answer(t); a.Status == "Not supported" && len(calls) != 1 {
			t.Errorf("%d calls though the first one was answered %q", len(calls), a.Status)
		}
		n.detach(v)
	})
}

// TestAnswersAreTheSameAfterATouch: any change in the driver's directory makes
// a new plugin object, which asks again what was "Not supported" before.
func TestAnswersAreTheSameAfterATouch(t *testing.T) {
	forDisks(t, onlyAttached(), testSameAfterTouch)
}

func testSameAfterTouch(t *testing.T, n *node, v *vol) {
	ask := func() {
		_, err := n.plugin().GetVolumeName(v.spec)
		n.must(err)
		_, err = n.attacher().VolumesAreAttached([]*volume.Spec{v.spec}, nodeName)
		n.must(err)
	}
	ask()
	ask()
	before := n.runner.made("getvolumename", "isattached")
	now := time.Now()
	n.must(os.Chtimes(n.executable(), now, now))
	eventually(t, "init after a touch", func() bool {
		n.plugin()
		return len(n.runner.made("init")) > 1
	})
	ask()
	after := n.runner.made("getvolumename", "isattached")[len(before):]
	for _, command := range []string{"getvolumename", "isattached"} {
		same := func(c *call) bool { return c.command() == command }
		i, j := slices.IndexFunc(before, same), slices.IndexFunc(after, same)
		if j < 0 {
			t.Fatalf("%s was not asked again", command)
		}
		if before[i].output != after[j].output {
			t.Errorf("%s: %q before the touch, %q after", command, before[i].output, after[j].output)
		}
	}
	n.detach(v)
}
