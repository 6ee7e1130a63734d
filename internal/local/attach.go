package local

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// attach runs in the control plane, usually on another machine. A local volume has
// nothing to attach there. attach reports faults in the options before a pod waits, and
// refuses a disk that another node has.
func (b *Backend) attach(ctx context.Context, c *flex.Call) (string, error) {
	v, err := parseVolume(c.Options)
	if err != nil {
		return "", err
	}
	if err := b.permitAttach(v, c.Options); err != nil {
		return "", err
	}
	if err := b.acquireLock(ctx, v, c); err != nil {
		return "", err
	}
	return v.deviceName(), nil
}

// deviceName is what the kubelet shows as the device. For an image it is
// no block device on purpose: the kubelet would check whether it is in use
// (GenerateUnmountDeviceFunc, isDeviceOpened), which unmountdevice does.
func (v *Volume) deviceName() string {
	if v.isDisk() {
		return v.Source
	}
	return ""
}

// renewAttach renews the attachment lock. kube-controller-manager calls isattached every minute
// for each volume, so a lock that is not renewed is from an earlier control plane.
func (b *Backend) renewAttach(ctx context.Context, c *flex.Call) error {
	if len(c.Options.User) == 0 {
		return nil // rebuilt after a restart, without options
	}
	_, err := b.attach(ctx, c)
	return err
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

// waitForAttach runs on the node and waits for a device. It does not open an image: only
// mount gets the namespace, and the answer would tell another one what exists.
func (b *Backend) waitForAttach(ctx context.Context, c *flex.Call) (string, error) {
	if len(c.Options.User) == 0 {
		return c.Device, nil // rebuilt after a restart, without options
	}
	v, err := parseVolume(c.Options)
	if err != nil {
		return "", err
	}
	if err := b.permit(v, c.Options); err != nil {
		return "", err
	}
	switch v.Kind {
	case kindImage:
		return v.Source, nil
	case kindDevice:
		d, err := b.waitForDevice(ctx, v.Source)
		if err != nil {
			return "", err
		}
		return d.Path, d.Close()
	}
	return "", nil
}

// identity identifies the disk that must not be attached to two nodes at once. A UUID
// is the same disk on every node. A path may be another disk on each node, so it counts
// together with the PersistentVolume that names it.
func (v *Volume) identity(volume string) string {
	if strings.Contains(v.Source, "=") || strings.HasPrefix(v.Source, "/dev/disk/by-") {
		volume = ""
	}
	h := fnv.New128a()
	_, _ = fmt.Fprintf(h, "%q %q %q", v.Kind, v.Source, volume)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// acquireLock creates or renews the attachment lock of the call's node, unless another
// node has the disk.
func (b *Backend) acquireLock(ctx context.Context, v *Volume, c *flex.Call) error {
	if b.AttachLocks == "" || !v.isDisk() {
		return nil
	}
	broken, err := b.AttachLocks.Acquire(ctx, statedir.AttachLock{
		Disk:     v.identity(c.VolumeName),
		Volume:   c.VolumeName,
		Node:     c.NodeName,
		ReadOnly: v.ReadOnly,
	})
	for _, err := range broken {
		b.log().Warn("ignoring a broken attachment lock", "error", err)
	}
	if conflict, ok := errors.AsType[*statedir.AttachConflict](err); ok {
		return flex.Errorf(flex.CodeFailedPrecondition, "%s %s is %w", v.Kind, v.Source, conflict)
	}
	if err != nil {
		return &flex.Error{Code: flex.CodeUnavailable, Err: err}
	}
	return nil
}
