package csidriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// With Config.Directories a volume is a directory that is bound wherever it is
// staged or published. Its image stays, empty: the length of it is the size
// that the volume claims to have.

func (s store) directory(id string) string { return filepath.Join(s.volumes(), id+".d") }

func (d *Driver) makeDirectory(id string) error {
	if !d.Directories {
		return nil
	}
	return os.MkdirAll(d.store.directory(id), 0o755)
}

func (n node) bindDirectory(ctx context.Context, a *admitted, t *mounter.Target) error {
	return n.mounter.Bind(ctx, n.store.directory(a.ID), anywhere(), t, bindOptions(a.MountFlags, a.readOnly), n.group(ctx, a.capability, a.readOnly))
}

// isDirectoryOf reports whether what is seen at path is a volume's directory.
func (d *Driver) isDirectoryOf(id, path string) bool {
	at, err := os.Stat(path)
	if err != nil {
		return false
	}
	ours, err := os.Stat(d.store.directory(id))
	return err == nil && os.SameFile(at, ours)
}

// boundAt returns a path at which a node has the volume's directory, or "".
func (d *Driver) boundAt(id string) (string, error) {
	nodes, err := os.ReadDir(d.store.nodes())
	if err != nil {
		return "", err
	}
	for _, node := range nodes {
		r, err := d.store.nodeVolume(node.Name(), id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		paths := []string{r.StagingPath}
		for target := range r.Targets {
			paths = append(paths, target)
		}
		for _, path := range paths {
			if mounted, err := isMounted(path); err != nil || mounted {
				return path, err
			}
		}
	}
	return "", nil
}
