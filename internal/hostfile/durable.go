package hostfile

// This file writes files that survive a power failure: a file is durable when its
// entry in the directory is, too.

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

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
