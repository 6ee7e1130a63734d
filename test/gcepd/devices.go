package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/gcp-compute-persistent-disk-csi-driver/pkg/deviceutils"
)

// devices are the disks that the node sees: a disk that is attached to it has a
// link to its loop device, as /dev/disk/by-id has on a virtual machine. They
// outlive this process.
type devices struct {
	deviceutils.DeviceUtils
	dir string
}

var _ deviceutils.DeviceUtils = (*devices)(nil)

func newDevices(dir string) *devices {
	return &devices{DeviceUtils: deviceutils.NewDeviceUtils(), dir: dir}
}

// smallest is the size of a new disk. What size the cloud believes it to have
// does not matter to the driver.
const smallest = 64 << 20

func (d *devices) image(disk string) string { return filepath.Join(d.dir, disk+".img") }
func (d *devices) link(disk string) string  { return filepath.Join(d.dir, "by-id", "google-"+disk) }

// attach gives the node a disk, once.
func (d *devices) attach(disk string) error {
	if _, err := os.Readlink(d.link(disk)); err == nil {
		return nil
	}
	if err := grow(d.image(disk), smallest); err != nil {
		return err
	}
	device, err := losetup("--find", "--show", d.image(disk))
	if err != nil {
		return err
	}
	err = os.MkdirAll(filepath.Dir(d.link(disk)), 0o700)
	if err == nil {
		err = os.Symlink(device, d.link(disk))
	}
	if err != nil {
		_, detachErr := losetup("--detach", device)
		return errors.Join(err, detachErr)
	}
	return nil
}

// detach takes it away again; one that is not there is gone.
func (d *devices) detach(disk string) error {
	device, err := os.Readlink(d.link(disk))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = losetup("--detach", device)
	}
	if err != nil {
		return fmt.Errorf("take disk %s away: %w", disk, err)
	}
	return os.Remove(d.link(disk))
}

// resize makes a disk as large as the cloud says it is now.
func (d *devices) resize(disk string, size int64) error {
	if err := grow(d.image(disk), size); err != nil {
		return err
	}
	device, err := os.Readlink(d.link(disk))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = losetup("--set-capacity", device)
	}
	return err
}

// attached lists the disks that the node has.
func (d *devices) attached() (disks []string) {
	links, err := filepath.Glob(d.link("*"))
	if err != nil {
		return nil // the pattern is ours
	}
	prefix := len(d.link(""))
	for _, link := range links {
		disks = append(disks, link[prefix:])
	}
	return disks
}

// GetDiskByIdPaths says where a disk is if it is attached.
func (d *devices) GetDiskByIdPaths(disk, _ string) []string { //nolint:staticcheck // the interface has the name
	return []string{d.link(disk)}
}

// VerifyDevicePath returns the path at which there is a device. The driver's
// own asks the disk for its serial number, which a loop device lacks.
func (d *devices) VerifyDevicePath(paths []string, disk string) (string, error) {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("disk %s is not attached to this node", disk)
}

// grow makes a file at least so large, and never smaller.
func grow(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make a disk: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() < size {
		err = f.Truncate(size)
	}
	return err
}

func losetup(args ...string) (string, error) {
	out, err := exec.Command("losetup", args...).CombinedOutput()
	out = bytes.TrimSpace(out)
	if err != nil {
		return "", fmt.Errorf("losetup %q: %w: %s", args, err, out)
	}
	return string(out), nil
}
