package local

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/nodemounts"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// findDevice opens the device that the option names now, if it has a name
// below the DeviceRoots. An error for which errors.Is(err, fs.ErrNotExist) says
// that it is not there.
func (b *Backend) findDevice(ctx context.Context, s string) (*mounter.BlockDevice, error) {
	name := s
	if isTag(s) {
		tag, value, _ := strings.Cut(s, "=")
		// Not by udev's link, which leads to the last of several disks that have it: who
		// writes to a disk may give it the UUID of another.
		path, err := b.Mounter.FindByTag(ctx, tag, value)
		if err != nil {
			return nil, nodemounts.WithCode(err)
		}
		if name = mounter.DeviceBelow(path, b.DeviceRoots); name == "" {
			return nil, denied("device %s: %s has no name below the deviceRoots in this node's configuration (%s); have an administrator add a directory that has (flexdriver install --device-root DIR)", s, path, strings.Join(b.DeviceRoots, ", "))
		}
	}
	d, err := mounter.OpenDevice(name, b.DeviceRoots)
	return d, nodemounts.WithCode(err)
}

// waitForDevice waits until the device is there.
func (b *Backend) waitForDevice(ctx context.Context, s string) (*mounter.BlockDevice, error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		d, err := b.findDevice(ctx, s)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, flex.Errorf(flex.CodeOf(context.Cause(ctx)), "device %s has not appeared: %w", s, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

func sameDevice(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Rdev == y.Rdev && x.Mode&unix.S_IFMT == unix.S_IFBLK && y.Mode&unix.S_IFMT == unix.S_IFBLK
}
