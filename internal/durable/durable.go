// Package durable writes files that survive a power failure: a file is durable when its
// entry in the directory is, too.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces a file atomically and durably: at any time there is the old or the new
// one. Only the owner can access a new file.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return SyncDir(dir)
}

// MakeDir creates a directory for its owner alone, and its parents, durably. It does not
// change an existing one.
func MakeDir(dir string) error {
	var made []string // parents of new directories
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

// isThere reports whether a path exists, also if that is not known.
func isThere(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// SyncDir makes creations, renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
