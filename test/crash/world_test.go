package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
	"github.com/flex2csi/flex2csi/test/trace"
)

const (
	driverName = "example.com/disk"
	pvName     = "pv-1"
	nodeName   = "node-1"
	namespace  = "default"

	// callPatience is far more than any call takes.
	callPatience = time.Minute
	// envWorld marks the processes of a world, children of the driver too.
	envWorld = "FLEX_CRASH_WORLD"
)

// A world is what one life happens in: a kubelet's directory, the driver in
// its plugin directory, and a place for images.
type world struct {
	t       *testing.T
	dir     string
	kubelet *testenv.KubeletDir
	driver  string
	volume  *volume
	// mounted are the directories where a mount is expected: what earlier
	// calls have made and later ones have not taken down.
	mounted map[string]bool
	// readOnly are those of them that were asked for read-only.
	readOnly map[string]bool
	// device is a loop device that stands for a disk, if the volume is one.
	device string
	// expanded says that the volume must have its new size.
	expanded bool
	// forgotten says that the image still has a loop device from before the first
	// call.
	forgotten bool
	// files are the contents that must be found in the volume, by name.
	files map[string]string
	// known are those of the image that a life begins with a copy of.
	known map[string]string
	// before are all files before the first call; calls leave no others.
	before map[string]bool
	calls  int
}

func newWorld(t *testing.T, v *volume) *world {
	t.Helper()
	k := testenv.Kubelet(t)
	w := &world{t: t, kubelet: k, dir: strings.TrimSuffix(k.Root, "/var/lib/kubelet"), driver: k.DriverPath(driverName), volume: v}
	for _, dir := range []string{filepath.Dir(w.driver), filepath.Dir(w.image()), w.path("shared"), w.path("spare")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A link, since a program that was just written is busy while any process
	// that was forked meanwhile has it open.
	if err := os.Symlink(os.Getenv(envBinary), w.driver); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"apiVersion":"flex2csi.io/v1alpha1","kind":"FlexDriverConfiguration","driver":%q,"backend":"local",
		"capabilities":{"attach":%t,"selinuxRelabel":true,"fsGroup":false,"supportsMetrics":true,"requiresFSResize":true},
		"fsGroupPolicy":"driver","directoryRoots":[%q],"imageRoots":[%q],"deviceRoots":["/dev"],"sourceTypes":[%q]}`,
		driverName, v.attach, w.path("shared"), w.path("images"), fuseType)
	w.mustWrite(filepath.Join(filepath.Dir(w.driver), ".flexdriver.json"), []byte(config), 0o644)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) template() string { return w.path("spare/template.img") }

func (w *world) image() string { return w.path("images/" + namespace + "/disk.img") }

func (w *world) mustWrite(path string, content []byte, mode os.FileMode) {
	w.t.Helper()
	if err := os.WriteFile(path, content, mode); err != nil {
		w.t.Fatal(err)
	}
}

// podDir is the directory of the volume in a pod.
func (w *world) podDir(pod string) string { return w.kubelet.PodVolumeDir(pod, driverName, pvName) }

// argv are the arguments of a callout, the program's name first.
func (w *world) argv(c call) []string {
	o := w.volume.options(w)
	o.VolumeName = pvName
	o.ReadOnly = o.ReadOnly || c.readOnly
	device := w.volume.device(w)
	if !w.volume.attach {
		device = ""
	}
	args := []string{w.driver, string(c.command)}
	switch c.command {
	case flex.CommandMount:
		o.PodName, o.PodNamespace, o.PodUID = c.pod, namespace, c.pod
		o.FSGroup = w.volume.fsGroup
		return append(args, w.target(c), w.marshal(o))
	case flex.CommandMountDevice:
		return append(args, w.target(c), device, w.marshal(o))
	case flex.CommandUnmount, flex.CommandUnmountDevice:
		return append(args, w.target(c))
	case flex.CommandAttach, flex.CommandIsAttached:
		return append(args, w.marshal(o), nodeName)
	case flex.CommandWaitForAttach:
		return append(args, device, w.marshal(o))
	case flex.CommandDetach:
		return append(args, pvName, nodeName)
	case flex.CommandExpandFS:
		return append(args, w.marshal(o), device, w.target(c), strconv.FormatInt(w.volume.grown(), 10), strconv.FormatInt(w.volume.size, 10))
	}
	w.t.Fatalf("no arguments known for %s", c.command)
	return nil
}

// target is the directory that a callout is about; "" if it is about none.
func (w *world) target(c call) string {
	switch c.command {
	case flex.CommandMountDevice, flex.CommandUnmountDevice:
		return w.kubelet.DeviceMountPath(driverName, pvName)
	case flex.CommandMount, flex.CommandUnmount, flex.CommandExpandFS:
		return w.podDir(c.pod)
	}
	return ""
}

// targets are all directories that a callout may be about.
func (w *world) targets() []string {
	return []string{w.podDir("pod-a"), w.podDir("pod-b"), w.kubelet.DeviceMountPath(driverName, pvName)}
}

func (w *world) marshal(o flex.Options) string {
	w.t.Helper()
	argument, err := o.MarshalArgument()
	if err != nil {
		w.t.Fatal(err)
	}
	return argument
}

func (w *world) environment() []string {
	return append(os.Environ(), envWorld+"="+w.dir)
}

// announce notes what is known of a call before it answers.
func (w *world) announce(c call) {
	w.calls++
	if !c.undoes() {
		w.readOnly[w.target(c)] = c.readOnly || w.volume.readOnly
	}
}

// call makes one call, undisturbed, and wants it to succeed.
func (w *world) call(c call) error {
	w.announce(c)
	ctx, cancel := context.WithTimeout(context.Background(), callPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.driver)
	cmd.Args, cmd.Env = w.argv(c), w.environment()
	var output []byte
	err := trace.OnThread(func() (err error) {
		output, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w: %s", c, err, output)
	}
	return w.judge(c, string(output))
}

// judge takes over what a success means for the world.
func (w *world) judge(c call, output string) error {
	var answer struct{ Status, Message string }
	if err := json.Unmarshal([]byte(output), &answer); err != nil {
		return fmt.Errorf("%s: the answer %q is no JSON: %w", c, output, err)
	}
	if c.command == flex.CommandExpandFS && mayRefuse(w.volume) && strings.Contains(answer.Message, "CAP_SYS_RESOURCE") {
		return nil
	}
	if answer.Status != string(flex.StatusSuccess) {
		return fmt.Errorf("%s: %s: %s", c, answer.Status, answer.Message)
	}
	switch c.command {
	case flex.CommandMount:
		w.mounted[w.target(c)], w.forgotten = true, false
	case flex.CommandExpandFS:
		w.expanded = true
	case flex.CommandMountDevice:
		// An image is of a namespace, which mount alone is told.
		w.mounted[w.target(c)] = w.volume.kind == kindDevice
	case flex.CommandUnmount, flex.CommandUnmountDevice:
		w.mounted[w.target(c)] = false
	}
	return nil
}

// mayRefuse: this process lacks CAP_SYS_RESOURCE, without which no ext4 grows
// while it is mounted (fs/ext4/resize.c, ext4_resize_begin). The driver then
// has to say so; that is checked like a success.
func mayRefuse(v *volume) bool {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		var capabilities uint64
		if n, _ := fmt.Sscanf(line, "CapEff: %x", &capabilities); n == 1 {
			return v.fsType == "ext4" && capabilities&(1<<unix.CAP_SYS_RESOURCE) == 0
		}
	}
	return false
}

// trace makes one call under trace.
func (w *world) trace(c call, tr *trace.Tracer) (*trace.Result, error) {
	w.announce(c)
	r, err := tr.Run(w.driver, w.argv(c), w.environment())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c, err)
	}
	for i, s := range r.Steps {
		r.Steps[i].What = strings.ReplaceAll(s.What, w.dir, "…")
	}
	r.Hit.What = strings.ReplaceAll(r.Hit.What, w.dir, "…")
	return r, nil
}

// begin makes the world as it is before the first call of a life.
func (w *world) begin() error {
	if w.forgotten {
		w.scrub()
	}
	w.expanded = false
	w.mounted, w.readOnly = map[string]bool{}, map[string]bool{}
	if err := w.volume.prepare(w); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	// Made by the kubelet before it calls.
	w.podDir("pod-a")
	w.podDir("pod-b")
	w.kubelet.DeviceMountPath(driverName, pvName)
	w.before = w.list()
	return nil
}

// expected returns the directories where a mount is expected.
func (w *world) expected() []string {
	var dirs []string
	for _, dir := range slices.Sorted(maps.Keys(w.mounted)) {
		if w.mounted[dir] {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}
