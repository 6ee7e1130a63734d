// Package durable writes what has to be there after the machine was switched off:
// a file is for good when its name is as well, which is the directory's.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces a file in one step, for good: whatever happens meanwhile,
// there is the old one or the new one. A new one is its owner's alone.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return SyncDir(dir)
}

// MakeDir makes a directory for its owner alone, with those above it, and their
// names durable. One that is there is left as it is.
func MakeDir(dir string) error {
	var made []string // parents of what is not there yet
	for at := filepath.Clean(dir); !isThere(at) && filepath.Dir(at) != at; at = filepath.Dir(at) {
		made = append(made, filepath.Dir(at))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range made {
		if err := SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// isThere: what cannot be looked at is none of ours to make.
func isThere(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// SyncDir makes what was made, renamed and removed in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
