package contract

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/volume/util/operationexecutor"
)

// setupSyscalls are what setting up a volume may be made of. Each that the
// driver uses is made to fail, always or once per thread. Where a new thread
// cannot be had the Go runtime ends the process before the driver has a say,
// so clone is not among them.
const setupSyscalls = "mount,move_mount,open_tree,fsopen,fsconfig,fsmount,mount_setattr,execve," +
	"ioctl,ftruncate,fallocate,linkat,renameat,renameat2,fsync,fchown,fchownat,fchmod,flock,openat2,statx," +
	"pread64,pidfd_open,socketpair,memfd_create"

// failing returns a wrapper that makes every call of one system call fail in
// the driver and its children, and writes down what was done to trace.
func failing(trace, syscall, errno, when string) wrapper {
	return func(argv []string) []string {
		inject := "inject=?" + syscall + ":error=" + errno
		if when != "" {
			inject += ":when=" + when
		}
		return append([]string{
			"strace", "-f", "-o", trace, "-e", "trace=?" + syscall, "-e", inject,
		}, argv...)
	}
}

// injected reports how often the trace shows a system call made to fail.
func (n *node) injected(trace string) int {
	n.t.Helper()
	body, err := os.ReadFile(trace)
	n.must(err)
	return strings.Count(string(body), "(INJECTED)")
}

// TestMountThatFailsAtAnyStepLeavesNothing: the kubelet never calls unmount
// after a failed mount. With attach:true mountdevice fails in the same way.
func TestMountThatFailsAtAnyStepLeavesNothing(t *testing.T) {
	need(t, "strace")
	for _, attach := range []bool{false, true} {
		command := map[bool]string{false: "mount", true: "mountdevice"}[attach]
		t.Run(command, func(t *testing.T) {
			hit, failed := 0, 0
			for _, syscall := range usedSyscalls(t, attach, command) {
				for _, when := range []string{"", "1", "2"} {
					t.Run(syscall+"@"+when, func(t *testing.T) {
						h, f := failOneStep(t, attach, command, syscall, when)
						hit, failed = hit+h, failed+f
					})
				}
			}
			t.Logf("%d runs had a system call that failed, %d of them answered Failure", hit, failed)
			if failed < 5 {
				t.Errorf("only %d injected errors made %s fail: the test has lost its grip", failed, command)
			}
		})
	}
}

// diskFor is a disk that is set up by mountdevice if attach is true, and by
// mount otherwise.
func diskFor(attach bool) kind {
	if attach {
		return deviceExt4()
	}
	return imageExt4()
}

// usedSyscalls returns which of setupSyscalls a set-up consists of.
func usedSyscalls(t *testing.T, attach bool, command string) []string {
	t.Helper()
	n := newNode(t, attach)
	v, pod := n.newVolume(diskFor(attach), "pv-1"), newPod("a")
	trace := filepath.Join(n.work, "trace")
	n.attach(v)
	n.runner.wrapped(command, func(argv []string) []string {
		return append([]string{"strace", "-f", "-o", trace, "-e", "trace=" + setupSyscalls}, argv...)
	}, func() { n.must(n.mount(v, pod)) })
	n.takeDown(v, pod)
	body, err := os.ReadFile(trace)
	n.must(err)
	return slices.DeleteFunc(strings.Split(setupSyscalls, ","), func(name string) bool {
		return !strings.Contains(string(body), " "+name+"(")
	})
}

func failOneStep(t *testing.T, attach bool, command, syscall, when string) (hit, failed int) {
	n := newNode(t, attach)
	v, pod := n.newVolume(diskFor(attach), "pv-1"), newPod("a")
	n.attach(v)
	trace := filepath.Join(n.work, "trace")
	var err error
	n.runner.wrapped(command, failing(trace, syscall, "EIO", when), func() { err = n.mount(v, pod) })
	if n.injected(trace) > 0 {
		hit = 1
	}
	if err == nil { // another way was found, or the call did not matter
		v.checkMounted(v.dir(pod))
		n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
		n.takeDown(v, pod)
		return hit, 0
	}
	if a := n.runner.last(t, command).answer(t); a.Status != "Failure" {
		t.Errorf("with %s failing: %+v", syscall, a)
	}
	checkFailedSetup(n, v, pod)
	n.checkWork("trace", "images", "shared", "pv-1.disk")
	// The second try, with nothing failing any more.
	n.must(n.mount(v, pod))
	v.checkMounted(v.dir(pod))
	n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
	n.takeDown(v, pod)
	return hit, 1
}

// checkWork fails if anything but the named files lies in the test's directory.
func (n *node) checkWork(names ...string) {
	n.t.Helper()
	entries, err := os.ReadDir(n.work)
	n.must(err)
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			n.t.Errorf("left behind: %s", e.Name())
		}
	}
}

// checkFailedSetup compares what the kubelet believes after a failed set-up
// with what is so.
func checkFailedSetup(n *node, v *vol, pod *v1.Pod) {
	n.t.Helper()
	n.checkVolumeState(v, pod, operationexecutor.VolumeNotMounted)
	if got := n.asw.GetDeviceMountState(v.uniqueName(pod)); got != operationexecutor.DeviceNotMounted {
		n.t.Errorf("device state %s", got)
	}
	if exists(v.dir(pod)) {
		n.t.Errorf("%s is still there", v.dir(pod))
	}
	v.checkNothingLeft()
}

// TestMountThatFailsForGoodLeavesNothing has the failures of real life.
func TestMountThatFailsForGoodLeavesNothing(t *testing.T) {
	options := func(o map[string]string) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { pv.Spec.FlexVolume.Options = o }
	}
	tests := map[string]func(n *node) func(*v1.PersistentVolume){
		"no options": func(*node) func(*v1.PersistentVolume) { return options(nil) },
		"unknown option": func(*node) func(*v1.PersistentVolume) {
			return options(map[string]string{"medium": "memory", "typo": "x"})
		},
		"two sources": func(n *node) func(*v1.PersistentVolume) {
			return options(map[string]string{"medium": "memory", "path": n.shared()})
		},
		"absent directory": func(n *node) func(*v1.PersistentVolume) {
			return options(map[string]string{"path": n.shared() + "/none"})
		},
		"directory outside the roots": func(*node) func(*v1.PersistentVolume) {
			return options(map[string]string{"path": "/etc"})
		},
		"bad mount option": func(*node) func(*v1.PersistentVolume) {
			return options(map[string]string{"medium": "memory", "mountOptions": "nonsense=1"})
		},
		"unknown file system": func(n *node) func(*v1.PersistentVolume) {
			return func(pv *v1.PersistentVolume) { pv.Spec.FlexVolume.FSType = "nonsensefs" }
		},
		"too small for the file system": func(n *node) func(*v1.PersistentVolume) {
			return func(pv *v1.PersistentVolume) {
				pv.Spec.FlexVolume.FSType = "xfs"
				pv.Spec.FlexVolume.Options["size"] = "1Mi"
			}
		},
	}
	for name, edit := range tests {
		for _, attach := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "", true: " (attach)"}[attach], func(t *testing.T) {
				n := newNode(t, attach)
				v, pod := n.newVolume(imageExt4(), "pv-1", edit(n)), newPod("a")
				failForGood(n, v, pod, attach)
			})
		}
	}
}

func failForGood(n *node, v *vol, pod *v1.Pod, attach bool) {
	n.t.Helper()
	if attach {
		// The controller may refuse it already; then no node ever sees it.
		if _, err := n.attacher().Attach(v.spec, nodeName); err != nil {
			return
		}
		n.attach(v)
	}
	for range 2 {
		err := n.mount(v, pod)
		if err == nil {
			n.t.Fatal("mounted")
		}
		if strings.Contains(err.Error(), "%!") || strings.Count(err.Error(), "\n") > 0 {
			n.t.Errorf("the event of the pod reads badly: %q", err)
		}
		checkFailedSetup(n, v, pod)
	}
	if slices.ContainsFunc(n.runner.made("unmount", "unmountdevice"), func(*call) bool { return true }) {
		n.t.Error("the kubelet undid something, so this contract has changed")
	}
}

// TestFullDiskFailsAndThenMounts: mkfs runs out of space; when there is some,
// what the first try left is no obstacle.
func TestFullDiskFailsAndThenMounts(t *testing.T) {
	n := newNode(t, false)
	v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
	small := filepath.Join(n.images(), "small")
	n.must(os.Mkdir(small, 0o755))
	n.mountTmpfs(small, "size=256k,mode=755")
	v.pv.Spec.FlexVolume.Options["image"] = filepath.Join(small, "disk.img")
	if err := n.mount(v, pod); err == nil {
		t.Fatal("a file system of 64 MiB fits in 256 KiB")
	}
	checkFailedSetup(n, v, pod)
	n.remountTmpfs(small, "size=100m")
	n.must(n.mount(v, pod))
	v.checkMounted(v.dir(pod))
	n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
	n.takeDown(v, pod)
}
