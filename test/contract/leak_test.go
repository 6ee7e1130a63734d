package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
)

// patience is how long anything that a test waits for may take. It is far more
// than needed: a test that passes never waits that long.
const patience = 30 * time.Second

// eventually polls until ok holds and fails t, saying what, if it never does.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// scratch returns a directory for t that is checked for leaks before it is
// removed: mounts and loop devices below it, and processes of this test binary.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "contract-") //nolint:usetesting // t.TempDir does not try again, see below
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Helper()
		checkLeaks(t, dir)
		// The kubelet's watcher, though told to end, may once more create the
		// plugin directory (pkg/volume/flexvolume/probe.go, handleWatchEvent).
		eventually(t, "remove "+dir, func() bool { return os.RemoveAll(dir) == nil && !exists(dir) })
	})
	return dir
}

// checkLeaks reports what is left of dir and removes it, so that the next test does not
// report it again. Mounts do not end by themselves; the others may.
func checkLeaks(t *testing.T, dir string) {
	t.Helper()
	for _, m := range slices.Backward(mountsBelow(t, dir)) {
		t.Errorf("leaked: mount of %s (%s) on %s", m.Source, m.FsType, m.MountPoint)
		if err := unix.Unmount(m.MountPoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("remove the leak: %v", err)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) && len(loopsBelow(t, dir))+len(children(t)) > 0 {
		time.Sleep(5 * time.Millisecond)
	}
	for device, file := range loopsBelow(t, dir) {
		t.Errorf("leaked: loop device %s on %s", device, file)
		detachLoop(t, device)
	}
	for _, pid := range children(t) {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // for the message only
		t.Errorf("leaked: process %d: %s", pid, strings.ReplaceAll(string(cmdline), "\x00", " "))
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// mountsBelow returns the mounts at dir and below it, the topmost last.
func mountsBelow(t *testing.T, dir string) []mount.MountInfo {
	t.Helper()
	all, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m mount.MountInfo) bool { return !below(dir, m.MountPoint) })
}

// loopsBelow returns the backing files below dir, by loop device.
func loopsBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	loops := map[string]string{}
	for _, f := range files {
		backing, err := os.ReadFile(f)
		if file := strings.TrimSpace(string(backing)); err == nil && below(dir, file) {
			loops[filepath.Join("/dev", strings.Split(f, "/")[3])] = file
		}
	}
	return loops
}

func detachLoop(t *testing.T, device string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Errorf("detach %s: %v", device, err)
		return
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
		t.Errorf("detach %s: %v", device, err)
	}
}

// children returns the processes of this test binary. It is the subreaper, so orphans of
// drivers are included. Dead orphans are reaped.
func children(t *testing.T) []int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, task := range tasks {
		list, _ := os.ReadFile(task) // a thread may have ended
		for field := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil); got != pid {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func below(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
