package bridgetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Volume is a PersistentVolume.
type Volume struct {
	// Apart says that each pod has files of its own, of a driver that mounts
	// nothing.
	Apart bool

	b       *Bridge
	name    string
	options flex.Options
	dirs    map[string]string // of pods
}

// Volume returns one with these options.
func (b *Bridge) Volume(name, fsType string, options map[string]string) *Volume {
	return &Volume{b: b, name: name, options: flex.Options{FSType: fsType, VolumeName: name, User: options}, dirs: map[string]string{}}
}

// argument is the kubelet's JSON. Only mount tells of the pod.
func (v *Volume) argument(pod string) string {
	v.b.t.Helper()
	o := v.options
	if pod != "" {
		o.PodName, o.PodNamespace, o.PodUID, o.ServiceAccountName = pod, "default", pod, "default"
	}
	text, err := o.MarshalArgument()
	if err != nil {
		v.b.t.Fatal(err)
	}
	return text
}

// TryMount gives the volume to a pod, and returns the answer.
func (v *Volume) TryMount(pod string) flex.DriverStatus {
	v.b.t.Helper()
	v.dirs[pod] = v.b.PodVolumeDir(pod, FlexDriver, v.name)
	return v.b.Call("mount", v.dirs[pod], v.argument(pod))
}

// Mount gives the volume to a pod, and returns the pod's directory.
func (v *Volume) Mount(pod string) string {
	v.b.t.Helper()
	if status := v.TryMount(pod); status.Status != flex.StatusSuccess {
		v.b.t.Fatalf("mount answered %s: %s", status.Status, status.Message)
	}
	return v.dirs[pod]
}

// Unmount takes it from a pod.
func (v *Volume) Unmount(pod string) {
	v.b.t.Helper()
	dir := v.dirs[pod]
	v.b.Must("unmount", dir)
	if mounted, err := mountinfo.Mounted(dir); err != nil || mounted {
		v.b.t.Errorf("after unmount: mounted %t, %v", mounted, err)
	}
	left := filepath.Join(v.b.Root, "pods", pod, "flex2csi")
	if _, err := os.Lstat(left); !errors.Is(err, fs.ErrNotExist) {
		v.b.t.Errorf("unmount left %s (%v)", left, err)
	}
}

// Attach is attach, waitforattach and mountdevice.
func (v *Volume) Attach() {
	v.b.t.Helper()
	attached := v.b.Must("attach", v.argument(""), nodeName)
	if a := v.b.Must("isattached", v.argument(""), nodeName); a.Attached == nil || !*a.Attached {
		v.b.t.Errorf("isattached: %+v", a)
	}
	device := v.b.Must("waitforattach", attached.Device, v.argument("")).Device
	v.b.Must("mountdevice", v.b.DeviceMountPath(FlexDriver, v.name), device, v.argument(""))
}

// Detach is unmountdevice and detach.
func (v *Volume) Detach() {
	v.b.t.Helper()
	v.b.Must("unmountdevice", v.b.DeviceMountPath(FlexDriver, v.name))
	v.b.Must("detach", v.name, nodeName)
}

// Life is one life of a volume: two pods share it, the second one reads what
// the first one wrote, and in the end nothing is mounted or recorded.
func (v *Volume) Life(attach bool) {
	t := v.b.t
	t.Helper()
	if attach {
		v.Attach()
	}
	file := filepath.Join(v.Mount("pod-a"), "file")
	v.Mount("pod-a") // again, as after a restart of the kubelet
	if err := os.WriteFile(file, []byte("data"), 0o644); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(v.Mount("pod-b"), "file")); !v.Apart && (err != nil || string(got) != "data") {
		t.Errorf("a second pod reads %q, %v", got, err)
	}
	for _, pod := range []string{"pod-a", "pod-b", "pod-a"} { // once too often
		v.Unmount(pod)
	}
	if attach {
		v.Detach()
	}
	v.b.WantNothing()
}

// WantNothing checks that nothing is mounted or recorded.
func (b *Bridge) WantNothing() {
	b.t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(b.Root))
	if err != nil || len(mounts) > 0 {
		b.t.Errorf("still mounted: %v, %v", mounts, err)
	}
	records, err := filepath.Glob(b.Path("state/*.json"))
	if err != nil || len(records) > 0 {
		b.t.Errorf("still recorded: %q, %v", records, err)
	}
}
