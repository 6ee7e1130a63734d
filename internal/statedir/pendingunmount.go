package statedir

// This file keeps the pending unmounts of a node. flexdriver unmounts
// without the daemon when the daemon does not answer, and leaves a file about it.
// For the daemon the volume stays in use until the daemon has completed that
// unmount: NodeUnpublishVolume and what follows.

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An PendingUnmount is one unmount that the daemon has not completed.
type PendingUnmount struct {
	// Driver is vendor/name.
	Driver string `json:"driver"`
	// Command is unmount or unmountdevice.
	Command flex.Command `json:"command"`
	// Dir is the kubelet's directory.
	Dir  string    `json:"dir"`
	Time time.Time `json:"time"`
}

// DefaultStateDir is the default of --state-dir: where the daemon keeps its state.
const DefaultStateDir = "/var/lib/flex2csi"

// suffix tells pending unmounts from the records in the same directory.
const suffix = ".pending-unmount"

// IsPendingUnmount reports whether a file of this name is a pending unmount.
func IsPendingUnmount(name string) bool { return strings.HasSuffix(name, suffix) }

// path has one file for each directory: a second unmount replaces the first.
func path(stateDir, dir string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(dir))
	return filepath.Join(stateDir, fmt.Sprintf("%x%s", h.Sum(nil), suffix))
}

// WritePendingUnmount writes u to stateDir, durably. It comes before the unmount.
func WritePendingUnmount(stateDir string, u PendingUnmount) error {
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	name := path(stateDir, u.Dir)
	f, err := os.CreateTemp(stateDir, ".unmount-*") // volstate removes what a killed process leaves
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	d, err := os.Open(stateDir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// FindPendingUnmount returns the pending unmount of a directory, if there is one.
func FindPendingUnmount(stateDir, dir string) (u PendingUnmount, found bool, err error) {
	u, err = read(path(stateDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return u, false, nil
	}
	return u, err == nil, err
}

// RemovePendingUnmount removes the pending unmount of a directory. It is no error if there is none.
func RemovePendingUnmount(stateDir, dir string) error {
	if err := os.Remove(path(stateDir, dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ListPendingUnmounts returns all pending unmounts, and an error for each file that cannot be read.
func ListPendingUnmounts(stateDir string) (found []PendingUnmount, broken []error) {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, []error{err}
	}
	for _, e := range entries {
		if !IsPendingUnmount(e.Name()) {
			continue
		}
		u, err := read(filepath.Join(stateDir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // completed since ReadDir
		}
		if err != nil {
			broken = append(broken, err)
			continue
		}
		found = append(found, u)
	}
	return found, broken
}

func read(file string) (PendingUnmount, error) {
	var u PendingUnmount
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &u)
	}
	if err == nil && path(filepath.Dir(file), u.Dir) != file {
		err = errors.New("the file name belongs to another directory")
	}
	if err != nil {
		return PendingUnmount{}, fmt.Errorf("pending unmount %s: %w", filepath.Base(file), err)
	}
	return u, nil
}

// A PendingUnmounts is the daemon's state directory.
type PendingUnmounts string

// Dirs returns the directories of all pending unmounts that can be read.
func (d PendingUnmounts) Dirs() []string {
	found, _ := ListPendingUnmounts(string(d)) // the daemon logs those that cannot, in its own round
	dirs := make([]string, 0, len(found))
	for _, u := range found {
		dirs = append(dirs, u.Dir)
	}
	return dirs
}

// Has reports whether dir has a pending unmount.
func (d PendingUnmounts) Has(dir string) (bool, error) {
	_, found, err := FindPendingUnmount(string(d), dir)
	return found, err
}

// Remove is [Remove].
func (d PendingUnmounts) Remove(dir string) error { return RemovePendingUnmount(string(d), dir) }
