package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/volume"
)

// volumeChecks names those of a volume.
func volumeChecks(attach bool) []string {
	names := podChecks()
	if attach {
		names = append(append([]string{"attach", "attach again", "waitforattach", "mountdevice", "mountdevice again"}, names...), deviceEnds()...)
	}
	return names
}

func podChecks() []string { return append([]string{"mount"}, mountedChecks()...) }

func mountedChecks() []string {
	return []string{"mount again", "files", "two pods at once", "read-only", "mount that fails leaves nothing", "unmount", "unmount again"}
}

func deviceEnds() []string {
	return []string{"unmountdevice", "unmountdevice again", "detach", "detach again"}
}

// checkVolume leads a volume through its life.
func (n *node) checkVolume(r *report, plugin volume.VolumePlugin, attach bool) {
	spec := n.spec("data", n.volume.Options, false)
	if !attach {
		n.checkPods(r, plugin, spec)
		return
	}
	attachable, isAttachable := plugin.(volume.AttachableVolumePlugin)
	if !isAttachable {
		r.skip("Kubernetes takes the driver for one that does not attach", volumeChecks(true)...)
		return
	}
	if n.checkDevice(r, attachable, spec) {
		n.checkPods(r, plugin, spec)
	} else {
		r.skip("the volume did not come to the node", podChecks()...)
	}
	n.checkDeviceEnd(r, attachable, spec)
}

// checkDevice brings the volume to the node.
func (n *node) checkDevice(r *report, plugin volume.AttachableVolumePlugin, spec *volume.Spec) bool {
	rest := []string{"attach again", "waitforattach", "mountdevice", "mountdevice again"}
	attacher, err := plugin.NewAttacher()
	if err != nil {
		r.skip(err.Error(), append([]string{"attach"}, rest...)...)
		return false
	}
	device, err := attacher.Attach(spec, nodeName)
	if !r.check("attach", err) {
		r.skip("attach failed", rest...)
		return false
	}
	n.checkReplay(r, "attach again", "attach", nil)
	device, err = attacher.WaitForAttach(spec, device, newPod("a"), n.runner.deadline)
	if !r.check("waitforattach", err) {
		r.skip("waitforattach failed", rest[2:]...)
		return false
	}
	path, err := attacher.GetDeviceMountPath(spec)
	if err == nil {
		err = attacher.MountDevice(spec, device, path, volume.DeviceMounterArgs{})
	}
	if !r.check("mountdevice", err) {
		r.skip("mountdevice failed", rest[3:]...)
		return false
	}
	n.checkReplay(r, "mountdevice again", "mountdevice", unchanged(path))
	return true
}

// unchanged returns a check that as much is mounted at dir as now.
func unchanged(dir string) func() error {
	before := len(mountsBelow(dir))
	return func() error {
		if now := len(mountsBelow(dir)); now != before {
			return fmt.Errorf("%d mounts at and below %s, %d before", now, dir, before)
		}
		return nil
	}
}

// checkReplay does the latest callout once more, as after an answer that the kubelet has not
// read.
func (n *node) checkReplay(r *report, name, command string, then func() error) {
	latest := n.runner.last(command)
	if latest == nil {
		r.add(notTried, name, "Kubernetes did not call %s", command)
		return
	}
	if a, err := latest.answer(); err == nil && a.Status == "Not supported" {
		r.add(notTried, name, "the driver leaves %s to the kubelet", command)
		return
	}
	err := n.do(latest.args...).wants("Success")
	if err == nil && then != nil {
		err = then()
	}
	r.check(name, err)
}

func (n *node) checkPods(r *report, plugin volume.VolumePlugin, spec *volume.Spec) {
	dir := n.podDir("a")
	if !r.check("mount", n.setUp(plugin, spec, "a")) {
		r.skip("mount failed", mountedChecks()...)
		n.takeAway(dir)
		return
	}
	n.checkReplay(r, "mount again", "mount", unchanged(dir))
	r.check("files", checkFile(dir))
	r.check("two pods at once", errors.Join(n.atOnce(func(pod string) error { return n.setUp(plugin, spec, pod) }),
		n.atOnce(func(pod string) error { return n.tearDown(plugin, pod) })))
	r.check("read-only", n.checkReadOnly(plugin))
	n.checkFailure(r, plugin)
	r.check("unmount", n.tearDown(plugin, "a"))
	n.takeAway(dir)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		r.add(notTried, "unmount again", "%v", err)
		return
	}
	n.checkUnmounts(r, "unmount again", "unmount", dir)
	n.takeAway(dir)
}

// setUp has Kubernetes mount the volume for a pod.
func (n *node) setUp(plugin volume.VolumePlugin, spec *volume.Spec, pod string) error {
	mounter, err := newMounter(plugin, spec, newPod(pod))
	if err == nil {
		err = mounter.SetUp(volume.MounterArgs{})
	}
	if err == nil && len(mountsBelow(n.podDir(pod))) == 0 {
		err = errors.New("mount succeeds, but nothing is mounted")
	}
	return err
}

func (n *node) tearDown(plugin volume.VolumePlugin, pod string) error {
	unmounter, err := plugin.NewUnmounter("data", newPod(pod).UID)
	if err == nil {
		err = unmounter.TearDown()
	}
	if err == nil {
		err = n.noMounts(n.podDir(pod))
	}
	return err
}

// atOnce does it for two pods.
func (n *node) atOnce(do func(pod string) error) error {
	errs := make([]error, 2)
	var wait sync.WaitGroup
	for i, pod := range []string{"b", "c"} {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := do(pod); err != nil {
				errs[i] = fmt.Errorf("pod %s: %w", pod, err)
			}
		}()
	}
	wait.Wait()
	return errors.Join(errs...)
}

func checkFile(dir string) error {
	file := filepath.Join(dir, ".flexdriver-conformance")
	if err := os.WriteFile(file, []byte("conformance"), 0o600); err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err == nil && string(data) != "conformance" {
		err = fmt.Errorf("%s has another content than was written", file)
	}
	return errors.Join(err, os.Remove(file))
}

func (n *node) checkReadOnly(plugin volume.VolumePlugin) error {
	err := n.setUp(plugin, n.spec("data", n.volume.Options, true), "readonly")
	if err == nil {
		if written := checkFile(n.podDir("readonly")); !errors.Is(written, unix.EROFS) {
			err = fmt.Errorf("writing a file ends with %v, want %w", written, unix.EROFS)
		}
	}
	return errors.Join(err, n.tearDown(plugin, "readonly"))
}

// checkFailure: the kubelet takes what a failed mount has left for a mount that is done.
func (n *node) checkFailure(r *report, plugin volume.VolumePlugin) {
	const name = "mount that fails leaves nothing"
	err := n.setUp(plugin, n.spec("data", map[string]string{}, false), "failure")
	if err == nil {
		r.add(notTried, name, "the driver mounts a volume without options")
		_ = n.tearDown(plugin, "failure") // what it leaves is found at the end
		return
	}
	r.check(name, n.noMounts(n.podDir("failure")))
}

func (n *node) checkDeviceEnd(r *report, plugin volume.AttachableVolumePlugin, spec *volume.Spec) {
	detacher, err := plugin.NewDetacher()
	if err != nil {
		r.skip(err.Error(), deviceEnds()...)
		return
	}
	path, err := plugin.(volume.DeviceMountableVolumePlugin).NewDeviceMounter()
	var dir string
	if err == nil {
		dir, err = path.GetDeviceMountPath(spec)
	}
	if err == nil {
		err = errors.Join(detacher.UnmountDevice(dir), n.noMounts(dir))
	}
	r.check("unmountdevice", err)
	n.checkReplay(r, "unmountdevice again", "unmountdevice", nil)
	r.check("detach", detacher.Detach("data", nodeName))
	n.checkReplay(r, "detach again", "detach", nil)
}

// takeAway removes what a check has left, without the driver. It never deletes a volume's
// files: a directory that is still mounted, or not empty, stays.
func (n *node) takeAway(dir string) {
	for _, m := range mountsBelow(dir) {
		_ = unix.Unmount(m, unix.MNT_DETACH)
	}
	_ = os.Remove(dir)
}
