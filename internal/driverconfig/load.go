//go:build unix

package driverconfig

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
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

// read never blocks: init runs under the lock of the kubelet's volume plugin manager
// (pkg/volume/plugins.go, refreshProbedPlugins), and a FIFO opened here would block all
// volume operations of the node.
//
// It does not use package os, which would set up its poller for this one file.
func read(path string) ([]byte, error) {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err // the caller names the path
	}
	defer unix.Close(fd)

	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.New("not a regular file")
	}
	data := make([]byte, min(st.Size, MaxSize)+1)
	length := 0
	for length < len(data) {
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, data[length:]) })
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return data[:length], nil
		}
		length += n
	}
	if length > MaxSize {
		return nil, fmt.Errorf("larger than %d KiB", MaxSize>>10)
	}
	return nil, errors.New("it grows while it is read")
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
