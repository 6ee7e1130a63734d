package local

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"

	"github.com/flex2csi/flex2csi/internal/attachlock"
	"github.com/flex2csi/flex2csi/internal/mountcode"
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
	if b.AttachLocks == "" {
		return nil
	}
	if err := b.AttachLocks.Release(ctx, c.VolumeName, c.NodeName); err != nil {
		return &flex.Error{Code: flex.CodeUnavailable, Err: err}
	}
	return nil
}

// waitForAttach runs on the node and waits for a device. An image that has to
// be created is left to mount, which knows for which namespace.
func (b *Backend) waitForAttach(ctx context.Context, c *flex.Call) (string, error) {
	if len(c.Options.User) == 0 {
		return c.Device, nil // rebuilt after a restart, without options
	}
	v, err := ParseVolume(c.Options)
	if err != nil {
		return "", err
	}
	if err := b.permit(v, c.Options); err != nil {
		return "", err
	}
	switch v.Kind {
	case KindImage:
		image, err := b.Mounter.OpenImage(ctx, v.Source, 0, b.ImageRoots)
		if errors.Is(err, fs.ErrNotExist) && v.createSize() > 0 {
			return v.Source, nil
		}
		if err != nil {
			return "", mountcode.Of(err)
		}
		return v.Source, image.Close()
	case KindDevice:
		d, err := b.waitForDevice(ctx, v.Source)
		if err != nil {
			return "", err
		}
		return d.Path, d.Close()
	}
	return "", nil
}

// identity is what must not be attached to two nodes at once. A UUID is the
// same disk everywhere. A path is not: each node may have its own, so it
// counts together with the PersistentVolume that names it.
func (v *Volume) identity(volume string) string {
	if strings.Contains(v.Source, "=") || strings.HasPrefix(v.Source, "/dev/disk/by-") {
		volume = ""
	}
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%q %q %q", v.Kind, v.Source, volume)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// takeLease notes that the call's node has a disk, or renews that, unless
// another node has it.
func (b *Backend) takeLease(ctx context.Context, v *Volume, c *flex.Call) error {
	if b.AttachLocks == "" || !v.isDisk() {
		return nil
	}
	broken, err := b.AttachLocks.Acquire(ctx, attachlock.Lock{
		Disk:     v.identity(c.VolumeName),
		Volume:   c.VolumeName,
		Node:     c.NodeName,
		ReadOnly: v.ReadOnly,
	})
	for _, err := range broken {
		b.log().Warn("ignoring a broken attachment lock", "error", err)
	}
	if conflict, ok := errors.AsType[*attachlock.Conflict](err); ok {
		return flex.Errorf(flex.CodeFailedPrecondition, "%s %s is %w", v.Kind, v.Source, conflict)
	}
	if err != nil {
		return &flex.Error{Code: flex.CodeUnavailable, Err: err}
	}
	return nil
}
