package local

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const driver = "example.com/disk"

// A world is a kubelet's directory and a backend that works in it.
type world struct {
	*testing.T
	b       Backend
	kubelet *testenv.KubeletDir
	dir     string // for images and the like
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testenv.Need(t, "mount")
	w := &world{T: t, kubelet: testenv.Kubelet(t), dir: t.TempDir()}
	w.b.ImageRoots, w.b.DeviceRoots = []string{w.dir}, []string{"/dev", w.dir}
	w.b.SourceTypes, w.b.MaxSize = []string{"nfs", "cifs", "lustre"}, 100<<30
	w.b.MaxSizePerNamespace, w.b.MaxImagesPerNamespace = 1<<62, 100
	testenv.LeakCheck(t, w.dir)
	return w
}

// pod is the directory in which a pod has its volume.
func (w *world) pod(name string) string { return w.kubelet.PodVolumeDir(name, driver, "pv") }

// device is the device mount path.
func (w *world) device() string { return w.kubelet.DeviceMountPath(driver, "pv") }

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// shared opens a directory to pods, and returns it.
func (w *world) shared() string {
	w.Helper()
	dir := w.dir + "-shared"
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	w.b.DirectoryRoots = append(w.b.DirectoryRoots, dir)
	return dir
}

// image is the path of an image of the namespace that options tells.
func (w *world) image(name string) string {
	w.Helper()
	dir := filepath.Join(w.dir, namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	return filepath.Join(dir, name)
}

const namespace = "team-a"

func call(command flex.Command, dir string, o flex.Options) *flex.Call {
	return &flex.Call{Command: command, Dir: dir, Options: o, VolumeName: "pv", NodeName: "node-1"}
}

// do runs a callout as flex.Run would.
func (w *world) do(c *flex.Call) error {
	w.Helper()
	_, err := w.b.Driver().Handle(w.Context(), c)
	return err
}

// answerDevice does a callout that answers a device.
func (w *world) answerDevice(ctx context.Context, c *flex.Call) (string, error) {
	w.Helper()
	answer, err := w.b.Driver().Handle(ctx, c)
	if err != nil {
		return "", err
	}
	return answer.Device, nil
}

func (w *world) mount(dir string, o flex.Options) {
	w.Helper()
	if err := w.do(call(flex.CommandMount, dir, o)); err != nil {
		w.Fatal(err)
	}
	w.mounted(dir, true)
}

func (w *world) unmount(dir string) {
	w.Helper()
	if err := w.do(call(flex.CommandUnmount, dir, flex.Options{})); err != nil {
		w.Fatal(err)
	}
	w.mounted(dir, false)
}

func (w *world) mounted(dir string, want bool) {
	w.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
	if err != nil {
		w.Fatal(err)
	}
	if got := len(infos) > 0; got != want {
		w.Errorf("%s is mounted: %t, want %t", dir, got, want)
	}
}

// refused checks that a callout fails, with what code and words.
func (w *world) refused(err error, code flex.Code, texts ...string) {
	w.Helper()
	if err == nil {
		w.Fatal("no error")
	}
	w.Logf("error (%s): %v", flex.CodeOf(err), err)
	if got := flex.CodeOf(err); got != code {
		w.Errorf("code %s, want %s: %v", got, code, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			w.Errorf("%q is not in %q", text, err)
		}
	}
}

func (w *world) write(path, text string) {
	w.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *world) read(path string) string {
	w.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		w.Fatal(err)
	}
	return string(b)
}

// disk attaches a file of a size to a loop device by hand: a disk of the node,
// which stays when no mount uses it.
func (w *world) disk(name string, size int64) (device string) {
	w.Helper()
	testenv.Need(w, "loop")
	path := w.path(name)
	w.write(path, "")
	if err := os.Truncate(path, size); err != nil {
		w.Fatal(err)
	}
	device = strings.TrimSpace(w.run("losetup", "--find", "--show", path))
	w.Cleanup(func() {
		if out, err := exec.Command("/usr/sbin/losetup", "--detach", device).CombinedOutput(); err != nil {
			w.Errorf("%v: %s", err, out)
		}
	})
	return device
}

func (w *world) run(name string, args ...string) string {
	w.Helper()
	out, err := exec.CommandContext(w.Context(), "/usr/sbin/"+name, args...).CombinedOutput()
	if err != nil {
		w.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// deadFUSE mounts a filesystem without a server: dead if closed, else silent.
func (w *world) deadFUSE(dir string, silent bool) {
	w.Helper()
	testenv.Need(w, "fuse")
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		w.Fatal(err)
	}
	if err := unix.Mount("server", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		w.Fatal(err)
	}
	if silent {
		w.Cleanup(func() { unix.Close(fd) })
		return
	}
	unix.Close(fd)
}
