package install

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// mountPoints returns the mount points in the mountinfo files that can be read; at least one
// must be readable. It calls no stat of a mount point, which would hang if its server is
// down.
func mountPoints(files []string) ([]string, error) {
	var points []string
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		points = append(points, parseMountinfo(string(data))...)
	}
	if len(errs) == len(files) {
		return nil, fmt.Errorf("find out which volumes are mounted: %w", errors.Join(errs...))
	}
	slices.Sort(points)
	return slices.Compact(points), nil
}

// parseMountinfo returns the mount points in the text of a mountinfo file, the fifth field
// (proc_pid_mountinfo(5)). Fields end only at a space: names may have other white space.
func parseMountinfo(text string) []string {
	const mountPoint = 4
	var points []string
	for line := range strings.Lines(text) {
		if fields := strings.Split(line, " "); len(fields) > mountPoint {
			points = append(points, unescape(fields[mountPoint]))
		}
	}
	return points
}

// unescape decodes the kernel's octal escapes: white space, '\\' and '#'.
func unescape(s string) string {
	const octal = 3
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		s = after
		if len(s) >= octal {
			if c, err := strconv.ParseUint(s[:octal], 8, 8); err == nil {
				b.WriteByte(byte(c))
				s = s[octal:]
				continue
			}
		}
		b.WriteByte('\\')
	}
}

// isVolumeOf reports whether path is a kubelet's mount point of a volume of driver, for any
// directory of the kubelet:
//
//	…/pods/<uid>/volumes/<vendor~driver>/<volume>
//	…/plugins/kubernetes.io/flexvolume/<vendor>/<driver>/mounts/<volume>
func isVolumeOf(driver driverconfig.DriverName, path string) bool {
	parts := strings.Split(path, "/")
	for i := range parts {
		if match(parts[i:], "pods", "", "volumes", driver.DirName(), "") {
			return true
		}
	}
	return isDeviceOf(driver, path)
}

// isDeviceOf reports the same of the second kind, which mountdevice has mounted.
func isDeviceOf(driver driverconfig.DriverName, path string) bool {
	parts := strings.Split(path, "/")
	for i := range parts {
		if match(parts[i:], "plugins", "kubernetes.io", "flexvolume", driver.Vendor, driver.Name, "") {
			return true
		}
	}
	return false
}

// match reports whether parts begins with pattern; "" matches anything.
func match(parts []string, pattern ...string) bool {
	if len(parts) < len(pattern) {
		return false
	}
	for i, p := range pattern {
		if p != "" && p != parts[i] {
			return false
		}
	}
	return true
}
