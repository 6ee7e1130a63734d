//go:build unix

package driverconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/hostfile"
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

// read returns a file that only root can change.
//
// It never blocks: init runs under the lock of the kubelet's volume plugin manager
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
	if err := trusted(&st); err != nil {
		return nil, err
	}
	if err := trustedWay(path); err != nil {
		return nil, err
	}
	return readAll(fd, st.Size)
}

// readAll reads size bytes, which is all there may be.
func readAll(fd int, size int64) ([]byte, error) {
	data := make([]byte, min(size, MaxSize)+1)
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

// trusted refuses what other users than root, and the one who calls, can change: the
// file says what of the node pods may have. It is hostfile.CheckTrusted without package os.
func trusted(st *unix.Stat_t) error {
	switch {
	case st.Uid != 0 && int(st.Uid) != unix.Geteuid():
		return fmt.Errorf("it belongs to the user with ID %d (chown root)", st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("it has mode %04o, so that others can change it (chmod go-w)", st.Mode&0o7777)
	}
	return nil
}

// trustedWay refuses a file in a directory where others can replace it, or one of the
// directories above. In a directory such as /tmp they cannot replace what is root's.
func trustedWay(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return fmt.Errorf("its directory %s: %w", dir, err)
		}
		if st.Mode&unix.S_ISVTX != 0 {
			st.Mode &^= 0o022
		}
		if st.Uid != 0 && hostfile.IsUnmapped(st.Uid) {
			st.Uid = 0
		}
		if err := trusted(&st); err != nil {
			return fmt.Errorf("its directory %s: %w", dir, err)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
