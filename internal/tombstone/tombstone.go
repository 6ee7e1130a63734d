// Package tombstone is what flexdriver leaves for the daemon when it had to
// unmount without it: a note that a directory of the kubelet is not wanted any
// more. For the daemon the volume is in use until it has read the note.
package tombstone

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

// A Tombstone is one unmount that the daemon has not seen.
type Tombstone struct {
	// Driver is vendor/name.
	Driver string `json:"driver"`
	// Command is unmount or unmountdevice.
	Command flex.Command `json:"command"`
	// Dir is the kubelet's directory.
	Dir  string    `json:"dir"`
	Time time.Time `json:"time"`
}

// DefaultStateDir is where the daemon keeps its state if nobody says otherwise.
const DefaultStateDir = "/var/lib/flex2csi"

// suffix is none of a record, beside which tombstones lie.
const suffix = ".tombstone"

// Is reports whether a file of this name is one.
func Is(name string) bool { return strings.HasSuffix(name, suffix) }

// path makes one file for each directory: a second unmount says the same.
func path(stateDir, dir string) string {
	h := fnv.New128a()
	_, _ = h.Write([]byte(dir))
	return filepath.Join(stateDir, fmt.Sprintf("%x%s", h.Sum(nil), suffix))
}

// Write leaves a tombstone in stateDir, durably, before the unmount.
func Write(stateDir string, t Tombstone) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	name := path(stateDir, t.Dir)
	f, err := os.CreateTemp(stateDir, ".tombstone-*")
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

// Find returns the tombstone of a directory, if there is one.
func Find(stateDir, dir string) (t Tombstone, found bool, err error) {
	t, err = read(path(stateDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return t, false, nil
	}
	return t, err == nil, err
}

// Remove takes a tombstone away. One that is not there is no error.
func Remove(stateDir, dir string) error {
	if err := os.Remove(path(stateDir, dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns all tombstones, and an error for each that cannot be read.
func List(stateDir string) (found []Tombstone, broken []error) {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, []error{err}
	}
	for _, e := range entries {
		if !Is(e.Name()) {
			continue
		}
		t, err := read(filepath.Join(stateDir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // worked off meanwhile
		}
		if err != nil {
			broken = append(broken, err)
			continue
		}
		found = append(found, t)
	}
	return found, broken
}

func read(file string) (Tombstone, error) {
	var t Tombstone
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && path(filepath.Dir(file), t.Dir) != file {
		err = errors.New("it is that of another directory")
	}
	if err != nil {
		return Tombstone{}, fmt.Errorf("tombstone %s: %w", filepath.Base(file), err)
	}
	return t, nil
}

// A Dir is a state directory, for the daemon.
type Dir string

// Has reports whether there is a tombstone of dir.
func (d Dir) Has(dir string) (bool, error) {
	_, found, err := Find(string(d), dir)
	return found, err
}

// Remove is [Remove].
func (d Dir) Remove(dir string) error { return Remove(string(d), dir) }
