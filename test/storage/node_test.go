package storage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/daemon"
	"github.com/flex2csi/flex2csi/test/storage/driver"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// node is a node of Kubernetes without a kubelet: the tests are it.
type node struct {
	*testenv.KubeletDir
	t *testing.T
	// dir has what is not the kubelet's. It is short: the path of a socket has at most 107 bytes.
	dir string
	// bridge and csi are nil where flexdriver is alone.
	bridge *daemon.Daemon
	csi    *csiDriver
	// served is the daemon's process.
	served *daemon.Process
	// edits are pairs of what is changed in a preset, and to what.
	edits []string
}

// csiDriver is a CSI driver of the node.
type csiDriver struct {
	kind    string
	process *daemon.Process
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") //nolint:usetesting // t.TempDir has a long name
	if err != nil {
		t.Fatal(err)
	}
	testenv.LeakCheck(t, dir)
	return &node{KubeletDir: testenv.Kubelet(t), t: t, dir: dir}
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// flexdriver runs the program, not as a driver. It does so up to three times, as the installer's
// pod is restarted: install gives init ten seconds, which a guest on a busy machine may not have.
func (n *node) flexdriver(args ...string) {
	n.t.Helper()
	var said []byte
	for range 3 {
		out, err := exec.Command(os.Getenv("FLEXDRIVER_BINARY"), args...).CombinedOutput()
		if err == nil {
			return
		}
		said = fmt.Appendf(said, "flexdriver %s: %v\n%s", args[0], err, out)
	}
	n.t.Fatalf("%s", said)
}

// alone installs flexdriver, which mounts by itself unless flags say otherwise.
func (n *node) alone(name string, flags ...string) {
	n.t.Helper()
	n.flexdriver(append([]string{"install", "--driver", name, "--volume-plugin-dir", n.PluginDir, "--kubelet-dir", n.Root}, flags...)...)
}

// bridged installs flexdriver for the bridge with a preset, and starts the bridge and its CSI driver.
func (n *node) bridged(name, preset, kind string, flags ...string) {
	n.t.Helper()
	n.configure(name, preset, kind, flags...)
	n.startCSI()
	n.startBridge()
}

// configure installs flexdriver for the bridge and configures that with a preset.
func (n *node) configure(name, preset, kind string, flags ...string) {
	n.t.Helper()
	n.bridge = &daemon.Daemon{Dir: n.dir, KubeletDir: n.Root, NodeName: "node-1"}
	n.csi = &csiDriver{kind: kind}
	config, err := exec.Command(os.Getenv("FLEX2CSI_BINARY"), "preset", "show", preset).Output()
	if err != nil {
		n.t.Fatal(err)
	}
	// With access to an API server the daemon finds the socket and reads the rest of the CSIDriver.
	text := strings.Replace(string(config), "\n  volume:", "\n  endpoint: "+n.path("csi.sock")+"\n  podInfo: true\n  fsGroup: File\n  volume:", 1)
	text = secretRef.ReplaceAllString(strings.NewReplacer(n.edits...).Replace(text), "file: "+n.path("secret.json"))
	if err := os.WriteFile(n.path("config.yaml"), []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.alone(name, append(flags, "--backend", "csi", "--socket", n.bridge.Socket(), "--state-dir", n.bridge.StateDir())...)
}

// secretRef matches the name of a Secret, which the daemon reads from the API server.
var secretRef = regexp.MustCompile(`secretRef: \{.*?, namespace: [^}]*\}`)

// setSecret writes the Secret that a preset names to the file that the daemon reads in its place.
func (n *node) setSecret(secret map[string]string) {
	n.t.Helper()
	text, err := json.Marshal(secret)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.path("secret.json"), text, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) startBridge() {
	n.t.Helper()
	n.served = n.start(exec.Command(os.Getenv("FLEX2CSI_BINARY"), n.bridge.Args()...), n.bridge.Socket())
}

// startCSI starts the project's own driver, or the real one where DRIVERS has it.
func (n *node) startCSI() {
	n.t.Helper()
	kind := driver.Kinds()[n.csi.kind]
	cmd := exec.Command(os.Args[0], "--kind", n.csi.kind, "--endpoint", n.path("csi.sock"))
	cmd.Env = append(os.Environ(), envDriver+"=1")
	if dir := os.Getenv("DRIVERS"); dir != "" && kind.Program != "" {
		cmd = exec.Command(filepath.Join(dir, kind.Program), kind.Args(n.path("csi.sock"), "node-1")...)
	}
	n.csi.process = n.start(cmd, n.path("csi.sock"))
}

func (n *node) start(cmd *exec.Cmd, socket string) *daemon.Process {
	n.t.Helper()
	p, err := daemon.Start(cmd, n.path(filepath.Base(cmd.Path)+".log"), socket)
	if err != nil {
		n.t.Fatal(err)
	}
	t := n.t // a later test may have the node then
	t.Cleanup(func() {
		_ = p.End(unix.SIGKILL) // it may have been ended
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(cmd.Path), p.Said(20_000))
		}
	})
	return p
}

// kill ends a process as a crash does.
func (n *node) kill(p *daemon.Process) {
	n.t.Helper()
	if err := p.End(unix.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
}

// call makes a callout.
func (n *node) call(driver string, args ...string) flex.DriverStatus {
	n.t.Helper()
	began := time.Now()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(n.DriverPath(driver), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var status flex.DriverStatus
	if jsonErr := json.Unmarshal(stdout.Bytes(), &status); err != nil || jsonErr != nil || stderr.Len() > 0 {
		n.t.Fatalf("%s: %v, %v: %q, %q", args[0], err, jsonErr, stdout.String(), stderr.String())
	}
	n.t.Logf("%s: %s %s (%.1f s)", args[0], status.Status, status.Message, time.Since(began).Seconds())
	return status
}

// volume is a PersistentVolume on a node.
type volume struct {
	n       *node
	driver  string
	options flex.Options
	// oneMode: pods that may write and pods that may not do not have it at the same time. The
	// kernel mounts a device in one way at a time.
	oneMode bool
}

// newVolume returns one with these options and Secret.
func (n *node) newVolume(driver, name, fsType string, options, secret map[string]string) *volume {
	v := &volume{n: n, driver: driver, options: flex.Options{FSType: fsType, VolumeName: name, User: options}}
	for key, value := range secret {
		if v.options.Secrets == nil {
			v.options.Secrets = map[string]flex.Secret{}
		}
		v.options.Secrets[key] = flex.NewSecret([]byte(value))
	}
	return v
}

// a pod of a volume; how it wants it is the caller's to set.
type pod struct {
	v        *volume
	name     string
	readOnly bool
	fsGroup  *int64
}

func (v *volume) pod(name string) *pod { return &pod{v: v, name: name} }

// dir is where the pod has the volume. Only tryMount makes it, as the kubelet does.
func (p *pod) dir() string {
	return filepath.Join(p.v.n.Root, "pods", p.name, "volumes", strings.ReplaceAll(p.v.driver, "/", "~"), p.v.options.VolumeName)
}

// argument is the options of a callout for the pod.
func (p *pod) argument() string {
	p.v.n.t.Helper()
	o := p.v.options
	o.PodName, o.PodNamespace, o.PodUID, o.ServiceAccountName = p.name, "default", p.name, "default"
	o.ReadOnly, o.FSGroup = p.readOnly, p.fsGroup
	text, err := o.MarshalArgument()
	if err != nil {
		p.v.n.t.Fatal(err)
	}
	return text
}

func (p *pod) tryMount() flex.DriverStatus {
	p.v.n.t.Helper()
	dir := p.v.n.PodVolumeDir(p.name, p.v.driver, p.v.options.VolumeName)
	return p.v.n.call(p.v.driver, "mount", dir, p.argument())
}

// expand is what the kubelet calls after a claim has grown.
func (p *pod) expand(before, after int64) flex.DriverStatus {
	p.v.n.t.Helper()
	size := func(bytes int64) string { return strconv.FormatInt(bytes, 10) }
	return p.v.n.call(p.v.driver, "expandfs", p.argument(), "", p.dir(), size(after), size(before))
}

func (p *pod) mount() *pod {
	p.v.n.t.Helper()
	if status := p.tryMount(); status.Status != flex.StatusSuccess {
		p.v.n.t.Fatalf("mount for %s answered %s: %s", p.name, status.Status, status.Message)
	}
	return p
}

func (p *pod) tryUnmount() flex.DriverStatus {
	p.v.n.t.Helper()
	return p.v.n.call(p.v.driver, "unmount", p.dir())
}

func (p *pod) unmount() {
	t := p.v.n.t
	t.Helper()
	if status := p.tryUnmount(); status.Status != flex.StatusSuccess {
		t.Fatalf("unmount for %s answered %s: %s", p.name, status.Status, status.Message)
	}
	if mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(p.dir())); err != nil || len(mounts) > 0 {
		t.Errorf("after unmount: mounted %d times, %v", len(mounts), err)
	}
}

// write makes a file with a text, and has the storage take it.
func (p *pod) write(name, text string) error {
	f, err := os.Create(filepath.Join(p.dir(), name))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Sync()
}

// wantRead fails the test unless a file has a text.
func (p *pod) wantRead(name, text string) {
	p.v.n.t.Helper()
	if got, err := os.ReadFile(filepath.Join(p.dir(), name)); err != nil || string(got) != text {
		p.v.n.t.Errorf("%s reads %q, %v; want %q", p.name, got, err, text)
	}
}

// wantNothing fails the test if something is mounted or recorded.
func (n *node) wantNothing() {
	n.t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(n.Root))
	if err != nil || len(mounts) > 0 {
		n.t.Errorf("still mounted: %s, %v", describe(mounts), err)
	}
	if n.bridge == nil {
		return
	}
	records, err := filepath.Glob(filepath.Join(n.bridge.StateDir(), "*.json"))
	if err != nil || len(records) > 0 {
		n.t.Errorf("still recorded: %q, %v", records, err)
	}
}

func describe(mounts []*mountinfo.Info) string {
	var b strings.Builder
	for _, m := range mounts {
		fmt.Fprintf(&b, "%s on %s; ", m.Source, m.Mountpoint)
	}
	return b.String()
}
