package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/mountcode"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// tags are the names by which a device can be given besides a path, with the
// directory where udev links them.
func tags() map[string]string {
	return map[string]string{
		"UUID":      "/dev/disk/by-uuid",
		"LABEL":     "/dev/disk/by-label",
		"PARTUUID":  "/dev/disk/by-partuuid",
		"PARTLABEL": "/dev/disk/by-partlabel",
	}
}

// checkDevice looks at the form of the option only.
func checkDevice(s string) error {
	tag, value, ok := strings.Cut(s, "=")
	if !ok || strings.HasPrefix(s, "/") {
		return mounter.CheckPath(s)
	}
	if _, known := tags()[tag]; !known {
		hint := ""
		if _, known := tags()[strings.ToUpper(tag)]; known {
			hint = "; did you mean " + strings.ToUpper(tag) + "=?"
		}
		return fmt.Errorf("%s= is not known: a device is a path, UUID=, LABEL=, PARTUUID= or PARTLABEL=%s", tag, hint)
	}
	if value == "" || value == "." || value == ".." || strings.ContainsAny(value, "/\x00") {
		return fmt.Errorf("%q cannot be a %s", value, tag)
	}
	return nil
}

// isTag reports whether a device is not given by its path.
func isTag(s string) bool { return strings.Contains(s, "=") && !strings.HasPrefix(s, "/") }

// findDevice opens the device that the option names now, if it has a name
// below the DeviceRoots. An error for which errors.Is(err, fs.ErrNotExist) says
// that it is not there.
func (b *Backend) findDevice(ctx context.Context, s string) (*mounter.BlockDevice, error) {
	name := s
	if isTag(s) {
		tag, value, _ := strings.Cut(s, "=")
		path := filepath.Join(tags()[tag], udevEscape(value))
		if _, err := os.Stat(path); err != nil {
			// A node without udev, or a link that is not there yet.
			if path, err = b.Mounter.FindByTag(ctx, tag, value); err != nil {
				return nil, mountcode.Of(err)
			}
		}
		if name = mounter.DeviceBelow(path, b.DeviceRoots); name == "" {
			return nil, denied("device %s: %s has no name below the deviceRoots in this node's configuration (%s); have an administrator add a directory that has (flexdriver install --device-root DIR)", s, path, strings.Join(b.DeviceRoots, ", "))
		}
	}
	d, err := mounter.OpenDevice(name, b.DeviceRoots)
	return d, mountcode.Of(err)
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

// udevEscape writes a label as udev names its link (util-linux, blkid
// encode_string): all but a few characters as \xNN.
func udevEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 0x80 || c == '#' || strings.IndexByte("+-.:=@_", c) >= 0 || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

func sameDevice(a, b string) bool {
	var x, y unix.Stat_t
	return unix.Stat(a, &x) == nil && unix.Stat(b, &y) == nil && x.Rdev == y.Rdev && x.Mode&unix.S_IFMT == unix.S_IFBLK && y.Mode&unix.S_IFMT == unix.S_IFBLK
}
