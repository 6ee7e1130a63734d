package mounter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// holder starts a program with n copies of a file open, which it holds until the test
// ends, and then last. It returns the program's pid.
func holder(t *testing.T, n int, file, last *os.File, command ...string) string {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	for range n {
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, last)
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	for comm := ""; comm != "cat\n"; { // until setpriv(1) has done its work
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		comm = string(text)
	}
	return strconv.Itoa(cmd.Process.Pid)
}

// inPods tells which processes are in which pods.
func inPods(pods map[string]string) func(pid string) string {
	return func(pid string) string { return pods[pid] }
}

// deepFile is a file with a path that is longer than a page, so that /proc has no text
// for it.
func deepFile(t *testing.T) *os.File {
	t.Helper()
	at, err := os.Open(t.TempDir())
	for i := 0; i < 20 && err == nil; i++ {
		var fd int
		name := strings.Repeat("d", 250)
		if err = unix.Mkdirat(int(at.Fd()), name, 0o700); err == nil {
			fd, err = unix.Openat(int(at.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		at.Close()
		at = os.NewFile(uintptr(fd), name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { at.Close() })
	return at
}

func loopFamily(t *testing.T) (family, *os.File) {
	t.Helper()
	testenv.Need(t, "loop")
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/sbin/losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("/usr/sbin/losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	f, err := familyOf(device)
	if err != nil {
		t.Fatal(err)
	}
	node, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return f, node
}

// One file with a long path, open in any pod, made every mount of a device on the node
// fail; so did a pod with 95,000 open files, which took longer than the scan may.
func TestScanPassesOverForeignFiles(t *testing.T) {
	f, node := loopFamily(t)
	deep := deepFile(t)
	crowd := holder(t, 3000, deep, deep, "cat")
	if err := f.scan(most, podOf); err != nil {
		t.Errorf("with deep paths open: %v", err)
	}
	confined := []string{"setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "cat"}
	pid := holder(t, 3000, deep, node, confined...)
	if err := f.scan(1000, inPods(map[string]string{pid: "a"})); err != nil {
		t.Errorf("a confined process of a pod was looked at to the end: %v", err)
	}
	for name, pods := range map[string]map[string]string{"a pod": {pid: "a"}, "a pod of its own": {crowd: "b", pid: "a"}} {
		if err := f.scan(3500, inPods(pods)); !errors.Is(err, errOpen) {
			t.Errorf("a confined process in %s has the device open: %v", name, err)
		}
	}
	// A container that is given the device is confined, and so is a program that gave up
	// its rights after it opened the device.
	if err := f.scan(1, podOf); !errors.Is(err, errOpen) {
		t.Errorf("a confined process outside of pods has the device open: %v", err)
	}
}

// A process that may open disks is looked at, however many files are open.
func TestScanFindsThePrivileged(t *testing.T) {
	f, node := loopFamily(t)
	pid := holder(t, 3000, deepFile(t), node, "cat")
	if err := f.scan(1, inPods(map[string]string{pid: "a"})); !errors.Is(err, errOpen) {
		t.Errorf("the device is open: %v", err)
	}
}

func TestPodIn(t *testing.T) {
	for cgroups, want := range map[string]string{
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-3.scope\n":                  "1_2.slice",
		"0::/kubepods.slice/kubepods-pod1.slice/crio-2.scope\n":                                                                 "1.slice",
		"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1.slice/x\n": "1.slice",
		"9:cpu:/\n8:pids:/kubepods/besteffort/pod1-2/3\n0::/x-pod4\n":                                                           "1-2",
		"0::/kubepods/pod1\n":                "1",
		"0::/../../kubepods/pod1/2\n":        "1",
		"0::/kubepods.slice\n0::/x/pod1\n":   "",
		"0::/system.slice/docker-12.scope\n": "",
		"0::/user.slice/pod1\n":              "",
		"":                                   "",
	} {
		if got := podIn(cgroups); got != want {
			t.Errorf("%q: %q, want %q", cgroups, got, want)
		}
	}
}
