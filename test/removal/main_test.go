package removal

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/flex2csi/flex2csi/test/bridgetest"
	"github.com/flex2csi/flex2csi/test/csidriver/cli"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// envMain makes the test binary the CSI driver.
const envMain = "REMOVAL_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		os.Exit(cli.Main(os.Args[1:], os.Stderr))
	}
	testenv.Main(m)
}

// modfiles by release. Releases before 1.30 compare device numbers.
var modfiles = map[string]string{"1.24": "go.k8s124.mod", "1.28": "go.k8s128.mod", "1.37": "go.mod"}

// kubelet builds the program of a release.
func kubelet(t *testing.T, release string) string {
	t.Helper()
	testenv.Need(t, "root", "mount")
	program := filepath.Join(t.TempDir(), "removepod")
	build := exec.Command("go", "build", "-buildvcs=false", "-modfile="+modfiles[release], "-o", program, ".")
	build.Dir = "../removepod"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the code of Kubernetes %s: %v\n%s", release, err, out)
	}
	return program
}

// releases in order, oldest first.
func releases() []string { return []string{"1.24", "1.28", "1.37"} }

// world is a node with a volume that is a directory of the kubelet's filesystem.
type world struct {
	*bridgetest.Bridge
	t       *testing.T
	kubelet string
	volume  *bridgetest.Volume
	daemon  *daemon.Process
	// tries counts the kubelet's.
	tries int
}

const (
	csiDriver = "loop.csi.example.com"
	handle    = "vol-1"
	pod       = "pod-a"
	precious  = "precious"
)

func newWorld(t *testing.T, kubelet string) *world {
	t.Helper()
	w := &world{Bridge: bridgetest.New(t), t: t, kubelet: kubelet}
	w.Flags = []string{"--grace=1s", "--reconcile-interval=100ms"}
	driver := exec.Command(os.Args[0], "--dir", w.Path("disks"), "--endpoint", w.Endpoint(), "--directories", "--volume", handle+"=8Mi", "--faults", w.faults())
	driver.Env = append(os.Environ(), envMain+"=1")
	w.Start(driver)
	w.daemon = w.Serve(csiDriver)
	w.volume = w.Bridge.Volume("pv-1", "", map[string]string{"volumeHandle": handle})
	testenv.Eventually(t, "the driver makes its volume", func() bool { _, err := os.Stat(w.data()); return err == nil })
	w.must(os.WriteFile(filepath.Join(w.data(), precious), []byte("x"), 0o600))
	return w
}

func (w *world) faults() string { return w.Path("faults.json") }

// fail has the driver fail from now on; without rules it works.
func (w *world) fail(rules ...fault.Rule) { w.must(fault.WriteFile(w.faults(), rules...)) }

// data is what the user has in the volume.
func (w *world) data() string { return w.Path("disks/volumes/" + handle + ".d") }

func (w *world) podDir() string { return filepath.Join(w.Root, "pods", pod) }

func (w *world) target() string {
	return filepath.Join(w.podDir(), "flex2csi/volumes/kubernetes.io~csi/pv-1/mount")
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// removePod is what a kubelet does every two seconds for a pod that it has forgotten, and
// reports whether nothing of the pod is left (pkg/kubelet/kubelet_volumes.go,
// cleanupOrphanedPodDirs). The user's file has to survive each time.
func (w *world) removePod() bool {
	w.t.Helper()
	w.tries++
	dirs, err := filepath.Glob(w.podDir() + "/*")
	w.must(err)
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return filepath.Base(dir) == "volumes" })
	out, err := exec.Command(w.kubelet, dirs...).CombinedOutput()
	if _, lost := os.Stat(filepath.Join(w.data(), precious)); lost != nil {
		w.t.Fatalf("the kubelet has deleted the user's file at try %d: %v: %s", w.tries, lost, out)
	}
	return err == nil
}

// removeUntilGone wants the kubelet to succeed in the end, and nothing to be left.
func (w *world) removeUntilGone() {
	w.t.Helper()
	testenv.Eventually(w.t, "the kubelet removes the pod", w.removePod)
	if left, err := filepath.Glob(w.podDir() + "/*"); err != nil || len(left) > 1 {
		w.t.Errorf("left of the pod: %q, %v", left, err)
	}
	testenv.Eventually(w.t, "the volume leaves the node", func() bool {
		records, err := filepath.Glob(w.Path("state/*.json"))
		return err == nil && len(records) == 0
	})
	w.WantNothing()
}

// mountsOf are the mounts of the pod.
func (w *world) mountsOf() (points []string) {
	w.t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.podDir()))
	w.must(err)
	for _, i := range infos {
		points = append(points, i.Mountpoint)
	}
	return points
}
