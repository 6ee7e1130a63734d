package install

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// save keeps what is there under second names, the executable last: from then on
// its presence says that an update is under way. kept is false if there was no
// executable, as after an Uninstall that was killed.
func (in *installer) save() (kept bool, err error) {
	_, exists, err := lstat(in.dir.executable(current))
	if err != nil || !exists {
		return false, err
	}
	_, configured, err := lstat(in.dir.config(current))
	switch {
	case err != nil:
		return false, err
	case configured:
		err = in.clone(in.dir.config(current), in.dir.config(saved))
	default: // a driver of other make: an empty file says that there was none
		err = in.write(in.dir.config(saved), nil, driverconfig.FileMode)
	}
	if err == nil {
		err = in.clone(in.dir.executable(current), in.dir.executable(saved))
	}
	if err == nil {
		err = in.sync(in.dir.path)
	}
	if err != nil {
		return false, fmt.Errorf("keep the earlier version: %w", err)
	}
	return true, nil
}

// commit renames the configuration or the record, and then the executable: the latter is
// what the kubelet notices, and the init that it then runs must find the former.
func (in *installer) commit() error {
	err := in.rename(in.stage.config(current), in.dir.config(current))
	if errors.Is(err, fs.ErrNotExist) { // the version has none
		err = in.remove(in.dir.config(current))
	}
	if err != nil {
		return fmt.Errorf("put the configuration in place: %w", err)
	}
	if err := in.rename(in.stage.record(), in.dir.record()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put the record in place: %w", err)
	}
	if err := in.rename(in.stage.executable(next), in.dir.executable(current)); err != nil {
		return fmt.Errorf("put the executable in place: %w", err)
	}
	if err := in.sync(in.dir.path); err != nil {
		return err
	}
	return in.removeDir(in.stage)
}

// restore ends an update that did not work: what save kept becomes current. It
// goes by way of the stage, for the saved names must stay until all is done.
func (in *installer) restore() error {
	if err := in.removeDir(in.stage); err != nil {
		return err
	}
	if err := in.stageSaved(); err != nil {
		return err
	}
	// Where the executable had not been replaced yet, its rename does nothing:
	// rename(2) of two names of one file. commit deletes what that leaves.
	if err := in.commit(); err != nil {
		return err
	}
	return in.removeLeftovers()
}

// removeLeftovers ends an update: it deletes what save kept.
func (in *installer) removeLeftovers() error { return in.removeFiles(in.dir.leftovers()) }
