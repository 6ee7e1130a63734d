package onnode_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install/onnode"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	// envRole makes the test binary a process of a node: it watches the directory
	// of envWatch, if there is one, and mounts a tmpfs at that of envCover, for
	// itself alone. Its / is that of envRoot.
	envRole  = "ONNODE_TEST_ROLE"
	envWatch = "ONNODE_TEST_WATCH"
	envCover = "ONNODE_TEST_COVER"
	envRoot  = "ONNODE_TEST_ROOT"

	envFlexdriver = "FLEXDRIVER_BINARY"
	envDir        = "ONNODE_TEST_DIR"
)

func TestMain(m *testing.M) {
	if os.Getenv(envRole) != "" {
		if err := play(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "onnode-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(envDir, dir)
	status := testenv.Isolate(inMemory{m}).Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// inMemory has the temporary directories in memory, where it can mount: each
// installation waits for the disk several times.
type inMemory struct{ m testenv.TestingM }

func (i inMemory) Run() int {
	dir := filepath.Join(os.Getenv(envDir), "memory")
	if os.Mkdir(dir, 0o755) == nil && unix.Mount("none", dir, "tmpfs", 0, "") == nil {
		os.Setenv("TMPDIR", dir)
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	}
	return i.m.Run()
}

// play is a process that looks like a kubelet to others.
func play() error {
	if dir := os.Getenv(envCover); dir != "" {
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	if err := unix.Chroot(os.Getenv(envRoot)); err != nil {
		return err
	}
	if dir := os.Getenv(envWatch); dir != "" {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return err
		}
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_ALL_EVENTS); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

var flexdriver = sync.OnceValues(func() (string, error) {
	return testenv.Program(os.Getenv(envDir), envFlexdriver, "../../../cmd/flexdriver")
})

// A node is directories that are really there, seen as a container sees them.
type node struct {
	t    *testing.T
	root string // its /, here
	out  bytes.Buffer
	on   onnode.Node

	executable string
	drivers    []*driverconfig.Configuration
}

const (
	pluginDir  = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
	kubeletDir = "/var/lib/kubelet"
	// noProcess is none of a kubelet: this machine may have some.
	noProcess = 1 << 22
)

func newNode(t *testing.T) *node {
	t.Helper()
	testenv.Need(t, "mount")
	program, err := flexdriver()
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, root: t.TempDir()}
	testenv.LeakCheck(t, n.root)
	n.mkdir("/proc")
	n.mount("/proc", "/proc", "", unix.MS_BIND|unix.MS_REC)
	n.mkdir(pluginDir)
	n.on = onnode.Node{
		Query:    kubelet.Query{Host: kubelet.Host{Root: n.root}, PID: noProcess},
		StateDir: filepath.Join(t.TempDir(), "state"),
		Out:      &n.out,
	}
	n.executable, n.drivers = program, drivers("disk", "share")
	return n
}

func drivers(names ...string) (all []*driverconfig.Configuration) {
	for _, name := range names {
		all = append(all, driverconfig.Default(driverconfig.DriverName{Vendor: "example.com", Name: name}, driverconfig.BackendCSI))
	}
	return all
}

// at is where a path of the node's is here.
func (n *node) at(path string) string { return filepath.Join(n.root, path) }

func (n *node) mkdir(path string) {
	n.t.Helper()
	if err := os.MkdirAll(n.at(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) write(path, content string) {
	n.t.Helper()
	n.mkdir(filepath.Dir(path))
	if err := os.WriteFile(n.at(path), []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) mount(source, path, fstype string, flags uintptr) {
	n.t.Helper()
	if err := unix.Mount(source, n.at(path), fstype, flags, ""); err != nil {
		n.t.Fatalf("mount %s: %v", path, err)
	}
	n.t.Cleanup(func() { _ = unix.Unmount(n.at(path), unix.MNT_DETACH) })
}

// start starts a process of this name until the test ends. It watches a
// directory, or has another one in the place of one, if these are not empty.
func (n *node) start(name, watch, cover string, args ...string) int {
	n.t.Helper()
	self, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{name}, args...)
	cmd.Env = append(os.Environ(), envRole+"=kubelet", envRoot+"="+n.root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if watch != "" {
		cmd.Env = append(cmd.Env, envWatch+"="+watch)
	}
	if cover != "" {
		cmd.Env = append(cmd.Env, envCover+"="+n.at(cover))
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		n.t.Fatal(err1, err2)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
		n.t.Fatalf("the process %s: %v", name, err)
	}
	return cmd.Process.Pid
}

// kubelet starts one that watches the usual plugin directory.
func (n *node) kubelet(args ...string) {
	n.t.Helper()
	n.on.Query.PID = n.start("kubelet", pluginDir, "", args...)
}

func (n *node) install() error {
	n.t.Helper()
	n.out.Reset()
	return n.on.Install(n.t.Context(), n.executable, n.drivers)
}

// wantInstalled wants success, and these drivers in this plugin directory.
func (n *node) wantInstalled(dir string, names ...string) {
	n.t.Helper()
	if err := n.install(); err != nil {
		n.t.Fatalf("%v\n%s", err, &n.out)
	}
	n.wantThere(dir, names...)
}

func (n *node) wantThere(dir string, names ...string) {
	n.t.Helper()
	entries, err := os.ReadDir(n.at(dir))
	if err != nil {
		n.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimPrefix(e.Name(), "example.com~"))
	}
	if !slices.Equal(got, names) {
		n.t.Errorf("there are %v in %s, want %v\n%s", got, dir, names, &n.out)
	}
}

// wantRefused wants an error with these texts in it, and nothing installed.
func (n *node) wantRefused(texts ...string) {
	n.t.Helper()
	err := n.install()
	if err == nil {
		n.t.Fatalf("no error\n%s", &n.out)
	}
	wantTexts(n.t, err.Error(), texts...)
	if strings.Contains(err.Error(), n.root) {
		n.t.Errorf("the error names the root of this container, which does not exist on the node: %v", err)
	}
	if files, _ := filepath.Glob(n.at(pluginDir) + "/*"); len(files) > 0 {
		n.t.Errorf("there is %v", files)
	}
}

func wantTexts(t *testing.T, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%q is not in\n%s", text, got)
		}
	}
}
