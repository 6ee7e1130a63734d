package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// settle is what comes after the faults: all pods get what they want, the
// driver has that and no more, and when the pods are gone nothing is left.
func (w *world) settle() {
	w.history.add("the faults end")
	for _, step := range []struct {
		what  string
		until func() error
	}{
		{"pods get their volumes", w.allServed},
		{"the driver has what pods have", w.driverAgrees},
		{"nothing is left of pods that were deleted", w.deleteAll},
		{"nothing is left", w.nothingLeft},
	} {
		if w.report.broken() {
			return
		}
		if err := w.until(step.until); err != nil {
			w.report.wrong(fmt.Sprintf("%v after the faults have ended it still is not so that %s: %v", patience, step.what, err))
		}
		w.history.add(step.what)
	}
	w.inOrder()
}

// until waits. A mount that came after its pod had been forgotten is found by
// the next kubelet, so in between there is one.
func (w *world) until(so func() error) error {
	const nextKubelet = 4 * time.Second
	restart := time.Now().Add(nextKubelet)
	deadline := time.Now().Add(patience)
	for {
		w.sweep()
		err := so()
		if err == nil || time.Now().After(deadline) || w.report.broken() {
			return err
		}
		if time.Now().After(restart) && w.lateMounts() > 0 {
			restart = time.Now().Add(nextKubelet)
			w.report.count("kubelet restarts to find late mounts")
			w.stopKubelet()
			w.startKubelet()
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sweep looks for directories of unknown pods, as a kubelet does ever
// again: one that was removed may be made once more by a call that was under
// way.
func (w *world) sweep() {
	dirs, _ := filepath.Glob(w.podDir("*")) // the pattern is well formed
	for _, dir := range dirs {
		if uid := filepath.Base(dir); !w.cluster.has(uid) {
			_ = w.cleanUp(uid) // what is mounted stays
		}
	}
}

// lateMounts counts the mounts of pods that there should not be any more.
func (w *world) lateMounts() int {
	wanted := map[string]bool{}
	for _, p := range w.cluster.all() {
		wanted[p.uid] = !p.gone()
	}
	n := 0
	dirs, _ := filepath.Glob(w.podDir("*/volumes/*/*")) // the pattern is well formed
	for _, dir := range dirs {
		uid, _, _ := strings.Cut(strings.TrimPrefix(dir, w.podDir("")), "/")
		if !wanted[uid] && isMount(dir) {
			n++
		}
	}
	return n
}

// allServed: all pods that there should be have all their volumes.
func (w *world) allServed() error {
	want := 0
	for _, p := range w.cluster.all() {
		if p.gone() {
			return fmt.Errorf("pod %s was deleted and is not cleaned up", p.uid)
		}
		want += len(p.uses)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if have := int(w.kubelet.using.Load()); have != want {
		return fmt.Errorf("%d of %d volumes are mounted", have, want)
	}
	return nil
}

// driverAgrees compares the driver's view with the pods.
func (w *world) driverAgrees() error {
	uses := map[string]int{}
	for _, p := range w.cluster.all() {
		for _, u := range p.uses {
			uses[u.volume.handle]++
		}
	}
	views, err := w.inspect()
	if err != nil {
		return err
	}
	for _, v := range w.volumes {
		view := views[v.handle].Nodes[nodeName]
		if got := len(view.Targets); got != uses[v.handle] {
			return fmt.Errorf("volume %s is published at %d paths (%v), and %d pods have it", v.handle, got, view.Targets, uses[v.handle])
		}
		if staged := view.StagingPath != ""; !w.NoStage && staged != (uses[v.handle] > 0) {
			return fmt.Errorf("volume %s: staged is %t, and %d pods have it", v.handle, staged, uses[v.handle])
		}
		if attached := len(views[v.handle].AttachedTo) > 0; w.Attach && attached != (uses[v.handle] > 0) {
			return fmt.Errorf("volume %s: attached is %t, and %d pods have it", v.handle, attached, uses[v.handle])
		}
	}
	return nil
}

// inspect returns the driver's view of what is mounted. It also remembers
// paths that it was not asked to unpublish, or said that it does not know: after a
// reboot, or with a lying driver, that is not known.
func (w *world) inspect() (map[string]csidriver.VolumeView, error) {
	views, err := csidriver.Inspect(w.disks())
	for _, view := range views {
		for node, n := range view.Nodes {
			n.Targets = slices.DeleteFunc(n.Targets, func(path string) bool { return !isMount(path) })
			if !isMount(n.StagingPath) {
				n.StagingPath = ""
			}
			view.Nodes[node] = n
			if n.StagingPath == "" && len(n.Targets) == 0 {
				delete(view.Nodes, node)
			}
		}
	}
	return views, err
}

func (w *world) deleteAll() error {
	pods := w.cluster.all()
	for _, p := range pods {
		p.delete()
	}
	if len(pods) > 0 {
		return fmt.Errorf("there are %d pods, %s", len(pods), pods[0].uid)
	}
	return nil
}

// removeForgottenDevices: a kubelet makes the device mount path, and then calls
// mountdevice. One that ends before the pod has its directory leaves the path, and the
// next one does not know of it (pkg/volume/flexvolume/util.go, prepareForMount).
func (w *world) removeForgottenDevices() {
	dirs, _ := filepath.Glob(w.kubeletDir() + "/plugins/kubernetes.io/flexvolume/*/*/mounts/*") // the pattern is well formed
	for _, dir := range dirs {
		if !isMount(dir) {
			_ = os.Remove(dir) // one that is not empty is a fault, and stays
		}
	}
}

// nothingLeft looks everywhere, when there are no pods any more.
func (w *world) nothingLeft() error {
	w.removeForgottenDevices()
	var left []string
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.kubeletDir()))
	if err != nil {
		return err
	}
	for _, m := range mounts {
		left = append(left, "mount at "+m.Mountpoint)
	}
	for _, pattern := range []string{
		w.stateDir() + "/" + csiName + "*.json", w.stateDir() + "/*~", w.stateDir() + "/*.pending-unmount", w.stateDir() + "/.*",
		w.podDir("*"), w.kubeletDir() + "/plugins/kubernetes.io/csi/*/*", w.kubeletDir() + "/plugins/kubernetes.io/flexvolume/*/*/mounts/*",
	} {
		paths, _ := filepath.Glob(pattern) // it is well formed
		left = append(left, paths...)
	}
	for _, v := range w.volumes {
		if v.attachment.get() != detached {
			left = append(left, "attachment of "+v.handle+" in kube-controller-manager")
		}
	}
	views, err := w.inspect()
	if err != nil {
		return err
	}
	for id, view := range views {
		if !view.Idle() {
			left = append(left, fmt.Sprintf("volume %s in the driver: %+v", id, view))
		}
	}
	if len(left) > 0 {
		slices.Sort(left)
		return errors.New(strings.Join(left[:min(len(left), 10)], "; "))
	}
	return nil
}

// inOrder checks the driver's log of this round and begins a new one.
func (w *world) inOrder() {
	list, err := calls.Read(w.callLog())
	if err != nil {
		w.report.wrong("read the driver's log: " + err.Error())
		return
	}
	log, err := os.ReadFile(w.path("daemon.log"))
	if err != nil {
		w.report.wrong(err.Error())
		return
	}
	markLeft(list, string(log))
	for _, fault := range w.order().check(list) {
		w.report.wrong(fault)
	}
	if w.report.broken() {
		return
	}
	if err := errors.Join(os.Truncate(w.callLog(), 0), os.Truncate(w.path("daemon.log"), 0), w.removeBroken()); err != nil {
		w.report.wrong(err.Error())
	}
	w.history.forget()
}

// removeBroken takes away what the daemon has put aside.
func (w *world) removeBroken() error {
	aside, err := filepath.Glob(w.stateDir() + "/*.broken")
	for _, name := range aside {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

// unmountAll unmounts all that processes have mounted.
func (w *world) unmountAll() error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.kubeletDir()))
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}
