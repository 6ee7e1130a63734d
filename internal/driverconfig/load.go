package driverconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Load reads, decodes and validates the configuration at path. A missing file
// is an error for which errors.Is(err, fs.ErrNotExist) holds.
func Load(path string) (*Configuration, error) {
	data, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no configuration at %s (run flexdriver install again, which writes it): %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	config, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w (mend the file or run flexdriver install again)", path, err)
	}
	return config, nil
}

// read does not block, whatever path is: init runs under the lock of the
// kubelet's volume plugin manager (pkg/volume/plugins.go, refreshProbedPlugins)
// and a FIFO opened here would stop all volume operations of the node.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err) // the caller names the path
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("larger than %d KiB", MaxSize>>10)
	}
	return data, nil
}

// Encode returns the configuration as the file's content. The configuration
// must be valid.
func (c *Configuration) Encode() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("encode configuration of %s: %w", c.Driver, err)
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode configuration of %s: %w", c.Driver, err)
	}
	return append(data, '\n'), nil
}
