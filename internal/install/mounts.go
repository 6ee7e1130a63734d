package install

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// mountPoints returns the mount points in the mountinfo files that can be read; at least one
// must be readable, and each of those whole: what cannot be parsed may be a volume. It calls
// no stat of a mount point, which would hang if its server is down.
func mountPoints(files []string) (points []string, err error) {
	readable := false
	for _, file := range files {
		mounts, failed := mounter.MountsIn(file, nil)
		if _, unreadable := errors.AsType[*fs.PathError](failed); failed != nil && !unreadable {
			return nil, fmt.Errorf("find out which volumes are mounted: %s: %w", file, failed)
		}
		for _, m := range mounts {
			points = append(points, m.Mountpoint)
		}
		readable = readable || failed == nil
		err = both(err, failed)
	}
	if !readable {
		return nil, fmt.Errorf("find out which volumes are mounted: %w", err)
	}
	slices.Sort(points)
	return slices.Compact(points), nil
}

// isVolumeOf reports whether path is in a volume of driver, for any directory of the
// kubelet: a pod's, or one that mountdevice has mounted.
func isVolumeOf(driver driverconfig.DriverName, path string) bool {
	return strings.Contains(path, kubeletdir.PodDir(driver.String())) || isDeviceOf(driver, path)
}

// isDeviceOf reports the same of the second kind.
func isDeviceOf(driver driverconfig.DriverName, path string) bool {
	return strings.Contains(path, "/plugins/kubernetes.io/flexvolume/"+driver.String()+"/")
}
