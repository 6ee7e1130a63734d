package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/durable"
)

// stateFile is the cache for a run that starts while the API server is unavailable.
type stateFile struct {
	Version int                          `json:"version"`
	Drivers map[string]csivol.DriverInfo `json:"csiDrivers"`
}

const (
	stateVersion = 1
	maxStateFile = 1 << 20
)

// readStateFile returns the content of the cache, if it exists. A file of another
// release is no error: it will be overwritten.
func readStateFile(path string) (map[string]csivol.DriverInfo, error) {
	var s stateFile
	if err := readCache(path, maxStateFile, &s); err != nil || s.Version != stateVersion {
		return nil, err
	}
	return s.Drivers, nil
}

// readCache reads a file with at most limit bytes. If there is none, content stays as it
// is.
func readCache(path string, limit int64, content any) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Size() > limit:
		return fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, content); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// writeStateFile replaces the file in one step.
func writeStateFile(path string, drivers map[string]csivol.DriverInfo) error {
	data, err := json.MarshalIndent(stateFile{stateVersion, drivers}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(data, '\n'))
}

func sameDrivers(a, b map[string]csivol.DriverInfo) bool {
	return maps.EqualFunc(a, b, func(x, y csivol.DriverInfo) bool {
		same := slices.Equal(x.Tokens, y.Tokens)
		return same && x.AttachRequired == y.AttachRequired && x.PodInfoOnMount == y.PodInfoOnMount &&
			x.RequiresRepublish == y.RequiresRepublish && x.FSGroupPolicy == y.FSGroupPolicy && x.TokensInSecrets == y.TokensInSecrets
	})
}
