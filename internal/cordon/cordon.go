// Package cordon keeps the cordon of the daemon: while it is cordoned it sets up no
// volume, and goes on with those that exist. flex2csi uninstall cordons the daemon
// before it removes the drivers. The cordon is a file in the state directory, so that
// a daemon that is restarted during the uninstallation is cordoned as well.
package cordon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/durable"
)

// A Cordon is the content of the file.
type Cordon struct {
	Since time.Time `json:"since"`
}

// FileName is the name of the cordon in the state directory.
const FileName = "cordon"

// Begin writes the cordon, durably, unless it exists.
func Begin(stateDir string) (*Cordon, error) {
	if r, err := Get(stateDir); r != nil && err == nil {
		return r, nil
	}
	r := &Cordon{Since: time.Now().UTC().Truncate(time.Second)}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(stateDir, FileName)
	if err := durable.WriteFile(path, append(data, '\n')); err != nil {
		return nil, fmt.Errorf("cordon the daemon: %w", err)
	}
	return r, nil
}

// End removes the cordon. It is no error if there is none.
func End(stateDir string) error {
	err := os.Remove(filepath.Join(stateDir, FileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the cordon of the daemon: %w", err)
	}
	return durable.SyncDir(stateDir)
}

// Get returns the cordon, or nil if there is none. A file that cannot be read is a
// cordon since the file's time: setting up a volume cannot be undone.
func Get(stateDir string) (*Cordon, error) {
	path := filepath.Join(stateDir, FileName)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, fmt.Errorf("read the cordon of the daemon: %w", err)
	}
	r := &Cordon{Since: info.ModTime().UTC()}
	if data, err := os.ReadFile(path); err == nil {
		var read Cordon
		if json.Unmarshal(data, &read) == nil && !read.Since.IsZero() {
			r = &read
		}
	}
	return r, nil
}
