package bridge

import (
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Without its controller a driver expands the filesystem at most, and some say OK
// where the volume has not grown, or echo the size that they were asked for (ceph-csi
// rbd answers {} after resize2fs has found nothing to do). With Success the claim would
// say a size that the filesystem has not. So the filesystem is asked.

const (
	// ownData is the part of a filesystem that may be its own: inode tables,
	// journal, log.
	ownData = 10
	// header is what encryption may take of a device (cryptsetup, LUKS2: 16 MiB).
	header = 32 << 20
)

// hasSize reports whether a filesystem has, or a device offers, what is wanted.
func hasSize(fs, device, want int64) bool {
	if fs >= want || device >= want {
		return true
	}
	return fs >= want-want/ownData && (device == 0 || device >= want-header)
}

// requireGrown is an error unless what is mounted for a target has the size.
func (b *Bridge) requireGrown(d *FlexDriver, v *volume, t *volstate.Target, c *flex.Call) error {
	fs, device, err := b.size(v, t, c.Dir)
	if err != nil || hasSize(fs, device, c.NewSize) {
		return err
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s: the driver reported success, and the filesystem has %d bytes on a device of %d, not %d: from here driver %s expands the filesystem, not the volume; set controllerEndpoint in its configuration, or grow the volume in its storage; the kubelet tries again", v.key, fs, device, c.NewSize, d.Name)
}

func (b *Bridge) size(v *volume, t *volstate.Target, dir string) (fs, device int64, err error) {
	fs, device, err = b.Mounts.Size(target(t, dir))
	if err != nil {
		err = flex.Errorf(flex.CodeUnavailable, "whether volume %s has been expanded is not known: %w", v.key, err)
	}
	return fs, device, err
}

// expandNothing is expand for a driver that has no part of it. Pods must be able to
// start where the size of the claim limits nothing.
func (b *Bridge) expandNothing(d *FlexDriver, v *volume, t *volstate.Target, c *flex.Call) error {
	r := v.record
	fs, device, err := b.size(v, t, c.Dir)
	switch {
	case err != nil:
		return err
	case hasSize(fs, device, c.NewSize):
	case device == 0:
		b.notify(r, t.Pod, "VolumeSizeNominal", "PersistentVolume %s was expanded to %d bytes, and driver %s expands nothing: its filesystem, which has no device of its own, has %d bytes, whatever the claim says", r.Name, c.NewSize, d.Name, fs)
	default:
		return flex.Errorf(flex.CodeFailedPrecondition, "driver %s expands neither volumes nor filesystems from here, and volume %s has a device of %d bytes, not %d: if it has a controller, set controllerEndpoint; otherwise set spec.capacity.storage of PersistentVolume %s back to %d, or its pods cannot start", d.Name, v.key, device, c.NewSize, r.Name, c.OldSize)
	}
	r.Expand, r.ExpandSize = volstate.Done, c.NewSize
	return nil
}
