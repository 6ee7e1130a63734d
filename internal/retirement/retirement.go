// Package retirement is the note that flex2csi is about to be removed from a
// node: nothing new is set up from then on. It is a file beside the records, so
// that it holds for the next daemon as well, should this one be killed while it
// is being uninstalled.
package retirement

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

// A Retirement is what the note says.
type Retirement struct {
	Since time.Time `json:"since"`
}

// name is none of a record.
const name = "retired"

// Begin leaves the note, durably. One that is there already stays.
func Begin(stateDir string) (*Retirement, error) {
	if r, err := Get(stateDir); r != nil && err == nil {
		return r, nil
	}
	r := &Retirement{Since: time.Now().UTC().Truncate(time.Second)}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(stateDir, name)
	if err := durable.WriteFile(path, append(data, '\n')); err != nil {
		return nil, fmt.Errorf("leave the note that flex2csi is being uninstalled: %w", err)
	}
	return r, nil
}

// End takes the note away. One that is not there is no error.
func End(stateDir string) error {
	err := os.Remove(filepath.Join(stateDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take away the note that flex2csi is being uninstalled: %w", err)
	}
	return durable.SyncDir(stateDir)
}

// Get returns the note; nil: there is none. One that cannot be read counts, with
// the time of the file: to set up a volume is what cannot be taken back.
func Get(stateDir string) (*Retirement, error) {
	path := filepath.Join(stateDir, name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // documented
	}
	if err != nil {
		return nil, fmt.Errorf("look whether flex2csi is being uninstalled: %w", err)
	}
	r := &Retirement{Since: info.ModTime().UTC()}
	if data, err := os.ReadFile(path); err == nil {
		var read Retirement
		if json.Unmarshal(data, &read) == nil && !read.Since.IsZero() {
			r = &read
		}
	}
	return r, nil
}
