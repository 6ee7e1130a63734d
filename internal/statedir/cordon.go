package statedir

// This file keeps the cordon of the daemon: while it is cordoned it sets up no
// volume, and goes on with those that exist. flex2csi uninstall cordons the daemon
// before it removes the drivers. The cordon is a file in the state directory, so that
// a daemon that is restarted during the uninstallation is cordoned as well.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// A Cordon is the content of the file.
type Cordon struct {
	Since time.Time `json:"since"`
}

// CordonFileName is the name of the cordon in the state directory.
const CordonFileName = "cordon"

// BeginCordon writes the cordon, durably, unless it exists.
func BeginCordon(stateDir string) (*Cordon, error) {
	if r, err := GetCordon(stateDir); r != nil && err == nil {
		return r, nil
	}
	r := &Cordon{Since: time.Now().UTC().Truncate(time.Second)}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(stateDir, CordonFileName)
	if err := hostfile.WriteFile(path, append(data, '\n')); err != nil {
		return nil, fmt.Errorf("cordon the daemon: %w", err)
	}
	return r, nil
}

// EndCordon removes the cordon. It is no error if there is none.
func EndCordon(stateDir string) error {
	err := os.Remove(filepath.Join(stateDir, CordonFileName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the cordon of the daemon: %w", err)
	}
	return hostfile.SyncDir(stateDir)
}

// GetCordon returns the cordon, or nil if there is none. A file that cannot be read is a
// cordon since the file's time: setting up a volume cannot be undone.
func GetCordon(stateDir string) (*Cordon, error) {
	path := filepath.Join(stateDir, CordonFileName)
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
