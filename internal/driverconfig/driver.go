package driverconfig

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/strict"
)

const (
	maxVendor = 128 // with maxName: ".vendor~name.new" stays one directory name
	maxName   = 63
)

// DriverName is the name of a driver. In PersistentVolumes it is written
// vendor/name, on the disk <plugin dir>/vendor~name/name.
type DriverName struct{ Vendor, Name string }

// ParseDriverName parses "vendor/name". Both parts are required: after a restart
// kube-controller-manager splits the names of volumes at the second slash
// (pkg/volume/util/util.go, SplitUniqueName). Each part has letters, digits, '-', '_' and
// '.', and begins and ends with a letter or digit. Upper case and '_' are allowed since
// existing PersistentVolumes, which cannot be changed, have such names.
func ParseDriverName(s string) (DriverName, error) {
	vendor, name, found := strings.Cut(s, "/")
	if !found {
		return DriverName{}, fmt.Errorf("driver name %q has no vendor, which flex2csi does not support: want vendor/name, such as example.com/disk, or make a PersistentVolume of the CSI driver in place of each volume", strict.Clip(s))
	}
	if err := checkPart(vendor, maxVendor); err != nil {
		return DriverName{}, fmt.Errorf("driver name %q: vendor %w: want vendor/name, such as example.com/disk", strict.Clip(s), err)
	}
	if err := checkPart(name, maxName); err != nil {
		return DriverName{}, fmt.Errorf("driver name %q: name %w: want vendor/name, such as example.com/disk", strict.Clip(s), err)
	}
	return DriverName{Vendor: vendor, Name: name}, nil
}

func checkPart(s string, limit int) error {
	if s == "" {
		return errors.New("is empty")
	}
	if len(s) > limit {
		return fmt.Errorf("is longer than %d bytes", limit)
	}
	for _, r := range s {
		if !alphanumeric(r) && !strings.ContainsRune("-_.", r) {
			return fmt.Errorf("has %q in it (letters, digits, '-', '_' and '.' are allowed)", r)
		}
	}
	if !alphanumeric(rune(s[0])) || !alphanumeric(rune(s[len(s)-1])) {
		return errors.New("does not begin and end with a letter or digit")
	}
	return nil
}

func alphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// DriverOfExecutable returns the name of the driver with its executable at path,
// which ends in vendor~name/name.
func DriverOfExecutable(path string) (DriverName, error) {
	dir, file := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	driver, err := ParseDriverName(strings.Replace(dir, "~", "/", 1))
	if err != nil || driver.Name != file {
		return DriverName{}, fmt.Errorf("%s does not end in vendor~name/name, so it tells no driver name: install the driver; by hand, --backend=local does without", path)
	}
	return driver, nil
}

// String returns vendor/name.
func (d DriverName) String() string {
	if d == (DriverName{}) {
		return ""
	}
	return d.Vendor + "/" + d.Name
}

// DirName returns vendor~name, the name of the driver's directory.
func (d DriverName) DirName() string { return d.Vendor + "~" + d.Name }

// MarshalText makes the name vendor/name in JSON.
func (d DriverName) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText takes vendor/name.
func (d *DriverName) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDriverName(string(text))
	return err
}
