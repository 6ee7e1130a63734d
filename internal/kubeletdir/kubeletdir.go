// Package kubeletdir parses the two kinds of paths that the kubelet gives to a
// FlexVolume driver, and finds the kubelet's root directory from them: it differs
// between distributions, and the kubelet does not pass it.
package kubeletdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// A Place is a mount point below a kubelet's root directory.
type Place struct {
	// Root is the kubelet's --root-dir.
	Root string
	// Driver is vendor/name.
	Driver string
	// Volume is the name of the PersistentVolume, or of an inline volume.
	Volume string
	// PodUID is empty for a device mount path.
	PodUID string
}

// Shapes, for messages and documents.
const (
	podShape    = "<kubelet dir>/pods/<uid>/volumes/<vendor>~<driver>/<volume>"
	deviceShape = "<kubelet dir>/plugins/kubernetes.io/flexvolume/<vendor>/<driver>/mounts/<volume>"
)

// Parse parses a pod's volume directory (pkg/volume/flexvolume/volume.go,
// GetPath) or a device mount path (pkg/volume/flexvolume/util.go,
// getDeviceMountPath; Kubernetes v1.37.1).
func Parse(dir string) (Place, error) {
	parts := strings.Split(dir, "/")
	n := len(parts)
	at := func(i int) string { return parts[n-i] }
	if !strings.HasPrefix(dir, "/") {
		return Place{}, noPlace(dir)
	}
	if n > 5 && at(5) == "pods" && at(3) == "volumes" {
		if driver, ok := unescape(at(2)); ok && at(4) != "" && at(1) != "" {
			return Place{Root: root(parts[:n-5]), Driver: driver, Volume: at(1), PodUID: at(4)}, nil
		}
	}
	if n > 7 && at(7) == "plugins" && at(6) == "kubernetes.io" && at(5) == "flexvolume" && at(4) != "" && at(3) != "" && at(2) == "mounts" && at(1) != "" {
		return Place{Root: root(parts[:n-7]), Driver: at(4) + "/" + at(3), Volume: at(1)}, nil
	}
	return Place{}, noPlace(dir)
}

// IsVolume reports whether a mount point belongs to a FlexVolume: a pod's volume directory,
// a device mount path, or a part of a volume for a container
// (subPath; pkg/volume/util/subpath/subpath_linux.go, getSubpathBindTarget).
func IsVolume(mountpoint string) bool {
	if parts := strings.Split(mountpoint, "/"); len(parts) > 6 && parts[len(parts)-4] == "volume-subpaths" && parts[len(parts)-6] == "pods" {
		return true
	}
	place, err := Parse(mountpoint)
	return err == nil && !strings.HasPrefix(place.Driver, "kubernetes.io/") // those of other plugins
}

func noPlace(dir string) error {
	return fmt.Errorf("%s is no directory of a FlexVolume: a pod's is %s, a device mount path is %s", dir, podShape, deviceShape)
}

// privateDirs is the number of our directories up from a target path, which counts, too:
// mount, <volume>, kubernetes.io~csi, volumes, flex2csi.
const privateDirs = 5

// TargetPath returns the target path of NodePublishVolume for a pod's volume directory:
// a path that every driver can see and parse, and that the kubelet ignores.
func TargetPath(dir string) (string, error) {
	place, err := Parse(dir)
	if err != nil {
		return "", err
	}
	if place.PodUID == "" {
		return "", fmt.Errorf("%s is no directory of a pod: that is %s", dir, podShape)
	}
	return path.Join(place.Root, "pods", place.PodUID, "flex2csi/volumes/kubernetes.io~csi", place.Volume, "mount"), nil
}

// Guard returns the directory of a target path's guard: the mount that stops a kubelet that
// deletes what is below pods/<uid> (docs/adr/0020-a-guard-above-each-target-path.md).
func Guard(target string) string { return path.Dir(target) }

// SpareTarget returns a path for what is published at a target path without a guard, while
// that path gets one. No PersistentVolume has a name with a dot in front.
func SpareTarget(target string) string {
	guard := Guard(target)
	return path.Join(path.Dir(guard), "."+path.Base(guard), path.Base(target))
}

// RemoveTarget removes a target path and our empty directories above it. The kubelet
// deletes everything below pods/<uid> except volumes when a pod was deleted, so nothing of
// ours may be left there.
func RemoveTarget(target string, rmdir func(dir string) error) {
	for range privateDirs {
		if err := rmdir(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // not empty: another volume of the pod is in it
		}
		target = path.Dir(target)
	}
}

// LinksTo returns the directory below which no link may lead to dir. The kubelet's root
// directory may be a link, and so may pods in it, where administrators keep it on another
// disk (bottlerocket-os/bottlerocket#2218).
func LinksTo(root, dir string) string {
	if pods := path.Join(root, "pods"); strings.HasPrefix(dir, pods+"/") {
		return pods
	}
	return root
}

// PodDir returns the part of volume directories that all pods have in common, to search for
// a driver's volumes.
func PodDir(driver string) string {
	return "/volumes/" + strings.Replace(driver, "/", "~", 1) + "/"
}

// DeviceDir returns the directory of a driver's device mount paths.
func DeviceDir(root, driver string) string {
	return path.Join(root, "plugins/kubernetes.io/flexvolume", driver, "mounts")
}

// LockFile returns the lock file for the calls for a kubelet's mount points. All drivers
// have the same one, since they may share volumes.
func LockFile(root string) string {
	return path.Join(root, "plugins/kubernetes.io/flexvolume/.flexdriver.lock")
}

func root(parts []string) string {
	if r := strings.Join(parts, "/"); r != "" {
		return r
	}
	return "/"
}

// unescape converts vendor~driver to vendor/driver
// (k8s.io/utils/strings.EscapeQualifiedName).
func unescape(s string) (string, bool) {
	vendor, driver, ok := strings.Cut(s, "~")
	return vendor + "/" + driver, ok && vendor != "" && driver != ""
}
