package faults

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A device is what a kubelet knows of a volume that is attached and then
// mounted once for all its pods.
type device struct {
	mu    sync.Mutex
	users int // pods that have the volume, want it or are leaving it
	// mounted: mountdevice has succeeded, unmountdevice not yet.
	mounted bool

	turn chan struct{} // for one operation at a time
}

func newDevice() *device { return &device{turn: make(chan struct{}, 1)} }

func (k *kubelet) device(v *volume) *device { return k.devices[v] }

func (d *device) enter() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users++
}

func (d *device) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users--
}

func (d *device) hasUsers() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.users > 0
}

func (d *device) isMounted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mounted
}

func (d *device) setMounted(mounted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounted = mounted
}

func (k *kubelet) devicePath(v *volume) string {
	return filepath.Join(k.kubeletDir(), "plugins/kubernetes.io/flexvolume", v.driver, "mounts", v.name)
}

// lock waits for the turn. Operations on a volume that can be attached come
// one after the other (pkg/volume/util/operationexecutor, MountVolume).
func (k *kubelet) lock(d *device) (unlock func(), err error) {
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-k.ctx.Done():
		return nil, k.ctx.Err()
	}
}

// prepareDevice is what comes before mount: waiting for the attachment,
// waitforattach, mountdevice (OG, GenerateMountVolumeFunc). With success the
// turn is the caller's.
func (k *kubelet) prepareDevice(random *rand.Rand, v *volume) (unlock func(), err error) {
	d := k.device(v)
	unlock, err = k.lock(d)
	if err != nil {
		return nil, err
	}
	if err := k.mountDevice(random, v, d); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (k *kubelet) mountDevice(random *rand.Rand, v *volume, d *device) error {
	if v.attachment.get() != attached {
		return errors.New("node.status.volumesAttached does not have it")
	}
	options := k.options(v, false, "")
	if err := k.call(k.ctx, random, v.driver, "waitforattach", "csi:"+v.handle, options); err != nil {
		return err
	}
	dir := k.devicePath(v)
	if d.isMounted() {
		return nil
	}
	// FV, MountDevice: what is a mount point is done.
	if !isMount(dir) {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		if err := k.call(k.ctx, random, v.driver, "mountdevice", dir, "csi:"+v.handle, options); err != nil {
			_ = os.Remove(dir) // as the kubelet does, whatever comes of it
			return err
		}
		if !isMount(dir) {
			k.complain("after mountdevice of %s nothing is mounted at %s", v.handle, dir)
		}
	}
	d.setMounted(true)
	return nil
}

// releaseDevice unmounts the device if the last pod has left it.
func (k *kubelet) releaseDevice(random *rand.Rand, v *volume) {
	if !v.attach() {
		return
	}
	d := k.device(v)
	for wait := 5 * time.Millisecond; k.ctx.Err() == nil && !d.hasUsers(); wait = min(2*wait, 300*time.Millisecond) {
		unlock, err := k.lock(d)
		if err != nil {
			return
		}
		done := d.hasUsers() || k.unmountDevice(random, v, d) == nil
		unlock()
		if done {
			return
		}
		k.pause(nil, wait)
	}
}

// unmountDevice skips the call if nothing is mounted (FV, UnmountDevice).
func (k *kubelet) unmountDevice(random *rand.Rand, v *volume, d *device) error {
	dir := k.devicePath(v)
	if isMount(dir) {
		if err := k.call(k.ctx, random, v.driver, "unmountdevice", dir); err != nil {
			return err
		}
		if isMount(dir) {
			k.complain("after unmountdevice of %s it is still mounted at %s", v.handle, dir)
		}
	}
	if err := removeDir(dir); err != nil {
		return err
	}
	d.setMounted(false)
	return nil
}
