package contract

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/util/removeall"
	"k8s.io/mount-utils"
)

// forMountedDisks runs f on disks with a file on them that pod "a" has.
func forMountedDisks(t *testing.T, f func(t *testing.T, n *node, v *vol, a *v1.Pod)) {
	forDisks(t, bothModes(), func(t *testing.T, n *node, v *vol) {
		a := newPod("a")
		n.must(n.mount(v, a))
		n.writeFile(filepath.Join(v.dir(a), "file"), "x")
		f(t, n, v, a)
	})
}

// TestPodDeletedWhileTheKubeletIsDown: it reconstructs the volume from the
// directory, without options, and unmounts with nothing but the path.
func TestPodDeletedWhileTheKubeletIsDown(t *testing.T) {
	forMountedDisks(t, func(t *testing.T, n *node, v *vol, a *v1.Pod) {
		n.restart()
		k := n.startKubelet()
		eventually(t, "taken down", func() bool { return k.idle() && !exists(v.dir(a)) })
		n.detach(v)
		v.checkNothingLeft()
		if len(n.runner.made("unmount")) != 1 {
			t.Errorf("the kubelet called %q", n.runner.sequence())
		}
	})
}

// TestKubeletRestartUnderARunningPod: the kubelet mounts again, finds the mount
// and leaves it alone; the pod keeps its files.
func TestKubeletRestartUnderARunningPod(t *testing.T) {
	forMountedDisks(t, func(t *testing.T, n *node, v *vol, a *v1.Pod) {
		for range 3 {
			n.restart()
			k := n.startKubelet(podVolume{a, v})
			eventually(t, "the pod has its volume", func() bool { return k.ready(a, v) })
			n.checkFile(filepath.Join(v.dir(a), "file"), "x")
			v.checkMounted(v.dir(a))
			k.end()
		}
		if len(n.runner.made("mount")) != 1 || len(n.runner.made("unmount", "unmountdevice")) != 0 {
			t.Errorf("the kubelet called %q", n.runner.sequence())
		}
		n.takeDown(v, a)
	})
}

// reboot is what the machine does: all mounts and loop devices of the node are
// gone, what is on the disk is not, and the kubelet starts again.
func (n *node) reboot(v *vol) {
	n.t.Helper()
	n.stop()
	if n.csi != nil {
		n.stopProgram(n.daemon, unix.SIGKILL)
		n.stopProgram(n.csiProcess, unix.SIGKILL)
	}
	for left := mountsBelow(n.t, n.root); len(left) > 0; left = mountsBelow(n.t, n.root) {
		n.must(unix.Unmount(left[len(left)-1].MountPoint, 0))
	}
	v.checkNotMounted()
	if n.csi != nil {
		n.newBootID()
		n.startCSIDriver()
		n.startDaemon()
	}
	n.start()
}

// newBootID is how the daemon learns of a reboot: the kernel's is hidden.
func (n *node) newBootID() {
	n.t.Helper()
	const kernels = "/proc/sys/kernel/random/boot_id"
	ours := filepath.Join(n.bridgeDir(), "boot_id")
	n.must(os.WriteFile(ours, []byte("00000000-0000-4000-8000-000000000001\n"), 0o444))
	n.must(unix.Mount(ours, kernels, "", unix.MS_BIND, ""))
	n.t.Cleanup(func() { n.must(unix.Unmount(kernels, unix.MNT_DETACH)) })
}

// TestReboot: the directories are there, the mounts are not. The volume of a
// pod that still exists is mounted again; of one that does not, it is removed.
func TestReboot(t *testing.T) {
	t.Run("pod exists", func(t *testing.T) {
		forMountedDisks(t, func(t *testing.T, n *node, v *vol, a *v1.Pod) {
			n.reboot(v)
			k := n.startKubelet(podVolume{a, v})
			eventually(t, "the pod has its volume", func() bool { return k.ready(a, v) })
			v.checkMounted(v.dir(a))
			n.checkFile(filepath.Join(v.dir(a), "file"), "x")
			k.end()
			n.takeDown(v, a)
		})
	})
	t.Run("pod is gone", func(t *testing.T) {
		forMountedDisks(t, func(t *testing.T, n *node, v *vol, a *v1.Pod) {
			n.reboot(v)
			k := n.startKubelet()
			eventually(t, "taken down", func() bool { return k.idle() && !exists(v.dir(a)) })
			n.detach(v)
			v.checkNothingLeft()
		})
	})
}

// TestWaitForAttachWithoutOptions: that is what a reconstructed spec has.
func TestWaitForAttachWithoutOptions(t *testing.T) {
	forDisks(t, onlyAttached(), func(t *testing.T, n *node, v *vol) {
		bare, err := reconstruct(n.plugin(), "pv-1", "/unused")
		n.must(err)
		device, err := n.attacher().WaitForAttach(bare, "/dev/of-attach", newPod("a"), attachTimeout)
		if err != nil || device != "/dev/of-attach" {
			t.Errorf("waitforattach returned %q, %v; want the device it was given", device, err)
		}
		n.detach(v)
	})
}

// TestKubeletsRemovalOfAPodTouchesNoData runs the code that deletes what is
// left of a pod, over one that has ended and over one with a mounted volume.
func TestKubeletsRemovalOfAPodTouchesNoData(t *testing.T) {
	forMountedDisks(t, func(t *testing.T, n *node, v *vol, a *v1.Pod) {
		podDir := filepath.Join(n.podsDir(), string(a.UID))
		if err := removeall.RemoveAllOneFilesystem(mount.New(""), podDir); err == nil {
			t.Error("removed the directory of a pod that has a volume")
		}
		n.checkFile(filepath.Join(v.dir(a), "file"), "x")
		n.must(n.unmount(v, a))
		n.must(removeall.RemoveAllOneFilesystem(mount.New(""), podDir))
		if exists(podDir) {
			t.Errorf("%s is still there", podDir)
		}
		b := newPod("b")
		n.must(n.mount(v, b))
		n.checkFile(filepath.Join(v.dir(b), "file"), "x")
		n.takeDown(v, b)
	})
}
