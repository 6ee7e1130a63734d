package nodeinstall

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/filelock"
)

// LeaveController removes the controller's socket at its end if the socket is in a
// plugin directory, and no driver there calls it any more. left reports whether it did.
// A socket elsewhere stays for the next controller, as its callers are not known.
func LeaveController(socket string) (left bool, err error) {
	// A name with a dot is how the kubelet is kept from looking at it, in a plugin
	// directory and in that of a driver.
	if !strings.HasPrefix(filepath.Base(socket), ".") {
		return false, nil
	}
	called, err := isCalled(socket)
	if err != nil || called {
		return false, err
	}
	lock, err := filelock.Try(socket + socketLock)
	switch {
	case errors.Is(err, filelock.ErrHeld), errors.Is(err, fs.ErrNotExist):
		return false, nil // another one has it, or the directory is gone
	case err != nil:
		return false, fmt.Errorf("remove the socket: %w", err)
	}
	defer lock.Close()
	for _, path := range []string{socket, socket + socketLock} {
		if err := remove(path); err != nil {
			return false, fmt.Errorf("remove the socket: %w", err)
		}
	}
	return true, nil
}

// isCalled says whether a driver in the socket's directory, or in one below it,
// is configured to call there. A driver counts if its configuration cannot be read, and
// if the path is absolute, since this may be another root.
func isCalled(socket string) (bool, error) {
	dir := filepath.Dir(socket)
	for _, pattern := range []string{".", "*~*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern, driverconfig.FileName))
		if err != nil {
			return false, err
		}
		for _, file := range files {
			c, err := driverconfig.Load(file)
			if err != nil || filepath.IsAbs(c.ControllerSocket) || c.ControllerSocketOf(filepath.Dir(file)) == socket {
				return true, nil //nolint:nilerr // its driver may call
			}
		}
	}
	return false, nil
}
