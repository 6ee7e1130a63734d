package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	driverName = "example.com/disk"
	// searchPath is where a node has its programs.
	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// A node is the file tree of one, in a temporary directory.
type node struct {
	dir        string
	flexdriver string // the program to install
	flex2csi   string // the daemon
	plugins    string // the kubelet's --volume-plugin-dir
	kubelet    string // the kubelet's --root-dir
	images     string // where the disk images lie, in a directory for each namespace
}

func newNode(dir string) (*node, error) {
	flexdriver, err := filepath.Abs(binary(envBinary))
	if err != nil {
		return nil, err
	}
	flex2csi, err := filepath.Abs(binary(envDaemon))
	if err != nil {
		return nil, err
	}
	n := &node{dir: dir, flexdriver: flexdriver, flex2csi: flex2csi, plugins: dir + "/exec", kubelet: dir + "/kubelet", images: dir + "/images"}
	for _, d := range []string{n.plugins, n.kubelet, n.images} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	// An image may be as large as what is free without a reserve; this machine's disk may be
	// nearly full. The images are sparse, and the demo's mount namespace ends with it.
	if err := unix.Mount("images", n.images, "tmpfs", unix.MS_NODEV, "size=24g,mode=755"); err != nil {
		return nil, fmt.Errorf("mount a filesystem for images at %s: %w", n.images, err)
	}
	return n, nil
}

// driver is the installed program, by the path that the kubelet calls.
func (n *node) driver() string { return n.plugins + "/example.com~disk/disk" }

// podDir makes the directory in which a pod finds the volume, as the kubelet
// does before it calls mount.
func (n *node) podDir(name string) (string, error) {
	dir := n.kubelet + "/pods/" + name + "/volumes/example.com~disk/data"
	return dir, os.MkdirAll(dir, 0o750)
}

// globalDir makes the device mount path.
func (n *node) globalDir() (string, error) {
	dir := n.kubelet + "/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/data"
	return dir, os.MkdirAll(dir, 0o750)
}

// short makes paths fit a line: the prologue says what it leaves out.
func (n *node) short(text string) string {
	return strings.NewReplacer(
		n.kubelet+"/pods/", "",
		"/volumes/example.com~disk/data", "",
		n.kubelet+"/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/data", "global",
		n.images+"/"+namespace+"/", "",
		n.csiDir()+"/volumes/", "",
		n.plugins, "…/exec",
		n.dir, "…",
	).Replace(text)
}

// A volume is what a PersistentVolume would say.
type volume struct {
	image, size, fsType string
	readOnly            bool
	handle              string // of the CSI driver's, instead of image and size
}

// namespace is that of the pods, to which the images belong.
const namespace = "default"

func (n *node) imagePath(v volume) string { return filepath.Join(n.images, namespace, v.image) }

// argument is the JSON argument as the kubelet writes it.
func (n *node) argument(v volume) (string, error) {
	o := flex.Options{VolumeName: "data", PodNamespace: namespace, FSType: v.fsType, ReadOnly: v.readOnly, User: map[string]string{"image": n.imagePath(v)}}
	if v.size != "" {
		o.User["size"] = v.size
	}
	if v.handle != "" {
		o.User = map[string]string{"volumeHandle": v.handle}
	}
	return o.MarshalArgument()
}

// String is the argument without what goes without saying.
func (v volume) String() string {
	text := fmt.Sprintf(`'{"image":%q`, v.image)
	if v.handle != "" {
		text = fmt.Sprintf(`'{"volumeHandle":%q`, v.handle)
	}
	if v.size != "" {
		text += fmt.Sprintf(`,"size":%q`, v.size)
	}
	if v.fsType != "" {
		text += fmt.Sprintf(`,"fsType":%q`, v.fsType)
	}
	if v.readOnly {
		text += `,"readwrite":"ro"`
	}
	return text + "}'"
}

// An answer is what a call gave.
type answer struct {
	flex.DriverStatus
	text string // of programs that talk to people
	took time.Duration
}

// command prepares a call as the kubelet makes it.
func (n *node) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + searchPath}
	return cmd
}

// run runs a program to its end, with standard output and error as one stream.
func (n *node) run(path string, args ...string) (answer, error) {
	start := time.Now()
	out, err := n.command(path, args...).CombinedOutput()
	return answer{text: strings.TrimSpace(string(out)), took: time.Since(start)}, err
}

// call makes a callout and reads its answer, which must be all that it says.
func (n *node) call(args ...string) (answer, error) {
	a, err := n.run(n.driver(), args...)
	if err != nil {
		return a, fmt.Errorf("%w: %s", err, a.text)
	}
	if err := json.Unmarshal([]byte(a.text), &a.DriverStatus); err != nil {
		return a, fmt.Errorf("no answer: %w: %q", err, a.text)
	}
	if a.Status == "" {
		return a, errors.New("an answer without a status: " + a.text)
	}
	return a, nil
}
