package bridge

import (
	"errors"
	"io/fs"
	"os"
)

// Dirs is what the bridge does with directories by itself.
type Dirs interface {
	// Make makes a directory and those above it. One that is there is success.
	Make(path string) error
	// Remove removes an empty directory.
	Remove(path string) error
	Exists(path string) (bool, error)
}

// dirs returns those of the node unless the Bridge was given others.
func (b *Bridge) dirs() Dirs {
	if b.Dirs == nil {
		return nodeDirs{}
	}
	return b.Dirs
}

type nodeDirs struct{}

func (nodeDirs) Make(path string) error   { return os.MkdirAll(path, 0o750) }
func (nodeDirs) Remove(path string) error { return os.Remove(path) }

func (nodeDirs) Exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
