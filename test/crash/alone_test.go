package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
	"github.com/flex2csi/flex2csi/test/trace"
)

// TestKillUnmountAlone kills the one callout of the backend csi that does
// something by itself: unmount while there is no daemon. Wherever it dies,
// nothing is unmounted that is not noted for the daemon, and the same call
// again does the rest.
func TestKillUnmountAlone(t *testing.T) {
	testenv.Need(t, "root", "mount")
	t.Run("undisturbed", func(t *testing.T) {
		a := newAlone(t)
		r := a.unmount(&trace.Tracer{Name: driverProgram})
		if r.Killed || !strings.Contains(r.Answer, `"Success"`) {
			t.Fatalf("the answer is %q", r.Answer)
		}
		a.gone()
		a.noted()
		for key, n := range occurrences(r.Steps) {
			for i := range n {
				t.Run(fmt.Sprintf("%s, %d", key, i+1), func(t *testing.T) {
					t.Parallel() // most of the time is spent waiting for a daemon
					newAlone(t).kill(key, i+1)
				})
			}
		}
		if n := len(occurrences(r.Steps)); n < leastPoints {
			t.Errorf("%d kill points: the tracer does not see what it does", n)
		}
	})
}

// occurrences are the steps that change the world, by what they do, and how
// often there is one. A daemon is dialled until it is late; of steps that are
// repeated like that the first one has to do. Nothing depends on a file being
// closed here.
func occurrences(steps []trace.Step) map[string]int {
	const often = 4
	times := map[string]int{}
	for _, s := range steps {
		if s.Class == trace.Changing && !strings.HasPrefix(s.What, "close ") {
			times[keyOf(s)]++
		}
	}
	for key, n := range times {
		if n > often {
			times[key] = 1
		}
	}
	return times
}

// keyOf is a step without what is different in each run: the names of files
// that are hashes or temporary, and the numbers of descriptors.
func keyOf(s trace.Step) string {
	return regexp.MustCompile(`[0-9a-f]{32}|[0-9]+`).ReplaceAllString(s.What, "N")
}

// nthOf kills the driver after the nth step with a key.
type nthOf struct {
	key, dir string
	left     int
}

func (n *nthOf) After(s trace.Step) trace.Target {
	s.What = strings.ReplaceAll(s.What, n.dir, "…")
	if s.Class != trace.Changing || keyOf(s) != n.key {
		return trace.None
	}
	if n.left--; n.left == 0 {
		return trace.Leader
	}
	return trace.None
}

// alone is a world without a daemon, with a volume that it has mounted.
type alone struct {
	*world
	state, pod, private string
}

func newAlone(t *testing.T) *alone {
	t.Helper()
	w := newWorld(t, &volume{kind: kindMemory})
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	a := &alone{world: w, state: w.path("state"), pod: w.podDir("pod-a")}
	config := fmt.Sprintf(`{"apiVersion":"flex2csi.io/v1alpha1","kind":"FlexDriverConfiguration","driver":%q,"backend":"csi",
		"socket":%q,"stateDir":%q,"timeouts":{"unmount":"3s"}}`, driverName, w.path("s"), a.state)
	w.mustWrite(filepath.Join(filepath.Dir(w.driver), ".flexdriver.json"), []byte(config), 0o644)
	var err error
	if a.private, err = kubeletdir.TargetPath(a.pod); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(a.private, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("csi", a.private, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(a.private, a.pod, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *alone) unmount(tr *trace.Tracer) *trace.Result {
	a.t.Helper()
	r, err := a.trace(call{command: flex.CommandUnmount, pod: "pod-a"}, tr)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

// kill kills the driver at one point, looks, and calls it again.
func (a *alone) kill(key string, n int) {
	a.t.Helper()
	r := a.unmount(&trace.Tracer{Name: driverProgram, Victim: &nthOf{key: key, dir: a.dir, left: n}})
	if !r.Killed {
		a.t.Fatalf("it ran through, and answered %s", r.Answer)
	}
	if !a.mountedAt(a.pod) || !a.mountedAt(a.private) {
		a.noted()
	}
	if a.mountedAt(a.pod) && !a.mountedAt(a.private) {
		a.t.Error("the pod's directory shows a volume that is not published any more")
	}
	if err := a.call(call{command: flex.CommandUnmount, pod: "pod-a"}); err != nil {
		a.t.Errorf("again: %v", err)
	}
	a.gone()
	a.noted()
}

func (a *alone) mountedAt(dir string) bool {
	a.t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
	if err != nil {
		a.t.Fatal(err)
	}
	return len(infos) > 0
}

// noted wants the daemon to find the unmount, and nothing that is broken.
func (a *alone) noted() {
	a.t.Helper()
	found, broken := statedir.ListPendingUnmounts(a.state)
	if len(found) != 1 || found[0].Dir != a.pod || len(broken) > 0 {
		a.t.Errorf("pending unmounts: %+v, %v", found, broken)
	}
}

// gone wants nothing to be left in the pod's directory but what the kubelet
// has made.
func (a *alone) gone() {
	a.t.Helper()
	if infos := a.mounts(); len(infos) > 0 {
		a.t.Errorf("still mounted: %s", infos[0].Mountpoint)
	}
	if left, err := filepath.Glob(filepath.Join(a.kubelet.Root, "pods/pod-a/*")); err != nil || len(left) != 1 {
		a.t.Errorf("left: %v, %v", left, err)
	}
}
