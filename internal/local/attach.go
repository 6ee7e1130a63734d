package local

import (
	"context"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// attach runs in the control plane, perhaps on another host, where nothing of
// the node can be seen. A local volume has nothing to attach there; what can
// be done is to find faults in the options before a pod waits for them, and
// to refuse a disk that another node has.
func (b *Backend) attach(ctx context.Context, c *flex.Call) (string, error) {
	v, err := ParseVolume(c.Options)
	if err != nil {
		return "", err
	}
	if err := b.takeLease(ctx, v, c); err != nil {
		return "", err
	}
	return v.deviceName(), nil
}

// deviceName is what the kubelet shows as the device. The one of an image is
// no block device on purpose: the kubelet would look whether it is in use
// (GenerateUnmountDeviceFunc, isDeviceOpened), which unmountdevice does.
func (v *Volume) deviceName() string {
	if v.isDisk() {
		return v.Source
	}
	return ""
}

// isAttached renews the lease. kube-controller-manager asks every minute for
// each volume, so leases that it does not renew are those of another time or
// another control plane.
func (b *Backend) isAttached(ctx context.Context, c *flex.Call) (bool, error) {
	if len(c.Options.User) == 0 {
		return true, nil // rebuilt after a restart, without options
	}
	v, err := ParseVolume(c.Options)
	if err != nil {
		return false, err
	}
	if err := b.takeLease(ctx, v, c); err != nil {
		return false, err
	}
	return true, nil
}

func (b *Backend) detach(ctx context.Context, c *flex.Call) error {
	return b.dropLease(ctx, c.VolumeName, c.NodeName)
}

// waitForAttach runs on the node: an image is created if it has to be, a
// device is waited for.
func (b *Backend) waitForAttach(ctx context.Context, c *flex.Call) (string, error) {
	if len(c.Options.User) == 0 {
		return c.Device, nil // rebuilt after a restart, without options
	}
	v, err := ParseVolume(c.Options)
	if err != nil {
		return "", err
	}
	switch v.Kind {
	case KindImage:
		image, err := b.Mounter.OpenImage(ctx, v.Source, v.createSize(), b.ImageRoots)
		if err != nil {
			return "", coded(err)
		}
		return v.Source, image.Close()
	case KindDevice:
		d, err := b.waitForDevice(ctx, v.Source)
		if err != nil {
			return "", err
		}
		return d.path, nil
	}
	return "", nil
}
