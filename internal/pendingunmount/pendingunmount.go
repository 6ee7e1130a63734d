// Package pendingunmount keeps the pending unmounts of a node. flexdriver unmounts
// without the daemon when the daemon does not answer, and leaves a file about it.
// For the daemon the volume stays in use until the daemon has completed that
// unmount: NodeUnpublishVolume and what follows.
package pendingunmount

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

// An Unmount is one unmount that the daemon has not completed.
type Unmount struct {
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

// IsFile reports whether a file of this name is a pending unmount.
func IsFile(name string) bool { return strings.HasSuffix(name, suffix) }

// path has one file for each directory: a second unmount replaces the first.
func path(stateDir, dir string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(dir))
	return filepath.Join(stateDir, fmt.Sprintf("%x%s", h.Sum(nil), suffix))
}

// Write writes u to stateDir, durably. It comes before the unmount.
func Write(stateDir string, u Unmount) error {
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

// Find returns the pending unmount of a directory, if there is one.
func Find(stateDir, dir string) (u Unmount, found bool, err error) {
	u, err = read(path(stateDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return u, false, nil
	}
	return u, err == nil, err
}

// Remove removes the pending unmount of a directory. It is no error if there is none.
func Remove(stateDir, dir string) error {
	if err := os.Remove(path(stateDir, dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns all pending unmounts, and an error for each file that cannot be read.
func List(stateDir string) (found []Unmount, broken []error) {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, []error{err}
	}
	for _, e := range entries {
		if !IsFile(e.Name()) {
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

func read(file string) (Unmount, error) {
	var u Unmount
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &u)
	}
	if err == nil && path(filepath.Dir(file), u.Dir) != file {
		err = errors.New("the file name belongs to another directory")
	}
	if err != nil {
		return Unmount{}, fmt.Errorf("pending unmount %s: %w", filepath.Base(file), err)
	}
	return u, nil
}

// A Dir is the daemon's state directory.
type Dir string

// Dirs returns the directories of all pending unmounts that can be read.
func (d Dir) Dirs() []string {
	found, _ := List(string(d)) // the daemon logs those that cannot, in its own round
	dirs := make([]string, 0, len(found))
	for _, u := range found {
		dirs = append(dirs, u.Dir)
	}
	return dirs
}

// Has reports whether dir has a pending unmount.
func (d Dir) Has(dir string) (bool, error) {
	_, found, err := Find(string(d), dir)
	return found, err
}

// Remove is [Remove].
func (d Dir) Remove(dir string) error { return Remove(string(d), dir) }
