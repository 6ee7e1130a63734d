package onnode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/statedir"
)

// Names in the state directory that are not those of records. The lock is
// removed last: who has it may remove the others.
const (
	lockFile     = "lock"
	socketLock   = ".lock" // added to the socket's name
	driversFile  = "csidrivers"
	volumesFile  = "persistentvolumes"
	previousFile = ".json~"
)

// Leave removes all directories of flex2csi when the daemon ends, if it was cordoned and
// its drivers are uninstalled. left reports whether it did.
func Leave(stateDir, socket string) (left bool, err error) {
	r, err := statedir.GetCordon(stateDir)
	if err != nil || r == nil {
		return false, err
	}
	word, err := Read(stateDir)
	if err != nil || len(word.Drivers)+len(word.Former) > 0 {
		return false, err
	}
	if s, err := daemon.FromFiles(stateDir); err != nil || len(inUse(s, nil)) > 0 {
		return false, err
	}
	return true, removeTraces(kubelet.Host{Root: word.HostRoot}, stateDir, socket)
}

// removeTraces removes the state directory and the socket's directory. It removes
// nothing if there are records, or if another process has begun to serve.
func removeTraces(host kubelet.Host, stateDir, socket string) error {
	// The locks that a daemon takes, in its order.
	for _, path := range []string{socket + socketLock, filepath.Join(stateDir, lockFile)} {
		lock, err := hostfile.TryLock(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // there is no such directory
			continue
		case errors.Is(err, hostfile.ErrHeld):
			return fmt.Errorf("%s is not removed: another flex2csi works with it", filepath.Dir(path))
		case err != nil:
			return fmt.Errorf("remove the directories of flex2csi: %w", err)
		}
		defer lock.Close()
	}
	return errors.Join(removeState(host, stateDir), removeSocketDir(host, socket))
}

// removeState removes the files; the cordon and the lock go last, for another process
// that starts meanwhile.
func removeState(host kubelet.Host, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the state directory: %w", err)
	}
	last := []string{fileName, statedir.CordonFileName, lockFile}
	var ours, strangers []string
	for _, e := range entries {
		switch name := e.Name(); {
		case slices.Contains(last, name):
		case name == driversFile, name == volumesFile, strings.HasPrefix(name, "."), strings.HasSuffix(name, previousFile):
			ours = append(ours, name)
		default:
			strangers = append(strangers, name)
		}
	}
	if len(strangers) > 0 {
		return fmt.Errorf("the state directory is not removed: %s has %s in it", dir, strings.Join(strangers, ", "))
	}
	for _, name := range append(ours, last...) {
		if err := remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove the state directory: %w", err)
		}
	}
	return removeDir(host, dir)
}

// removeSocketDir removes a socket at which no process listens, and its directory if it is
// empty then.
func removeSocketDir(host kubelet.Host, socket string) error {
	if err := removeSocket(socket); err != nil {
		return err
	}
	err := removeDir(host, filepath.Dir(socket))
	if errors.Is(err, unix.ENOTEMPTY) { // it is no directory of our own
		return nil
	}
	return err
}

func removeSocket(socket string) error {
	for _, path := range []string{socket, socket + socketLock} {
		if err := remove(path); err != nil {
			return fmt.Errorf("remove the socket: %w", err)
		}
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeDir removes an empty directory. In a container something is mounted
// there, and it can be removed only where the node has it: below the host's
// root, if that is known.
func removeDir(host kubelet.Host, dir string) error {
	here, err := host.Resolve(dir)
	if err != nil {
		return err
	}
	if err := remove(here); err != nil && !errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}

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
	lock, err := hostfile.TryLock(socket + socketLock)
	switch {
	case errors.Is(err, hostfile.ErrHeld), errors.Is(err, fs.ErrNotExist):
		return false, nil // another one has it, or the directory is gone
	case err != nil:
		return false, fmt.Errorf("remove the socket: %w", err)
	}
	defer lock.Close()
	err = removeSocket(socket)
	return err == nil, err
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
