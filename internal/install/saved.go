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

// promote ends an update that worked. There may be nothing to keep, or only the
// executable if this was killed after the first rename.
func (in *installer) promote() error {
	err := in.rename(in.dir.config(saved), in.dir.config(previous))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = in.rename(in.dir.executable(saved), in.dir.executable(previous))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the driver is installed, but the earlier version could not be kept: %w", err)
	}
	in.did("kept the earlier version as %s", in.dir.executable(previous))
	return in.sync(in.dir.path)
}

// restore ends an update that did not work: what save kept becomes current. It
// goes by way of the stage, for the saved names must stay until all is done.
func (in *installer) restore() error {
	if err := in.removeDir(in.stage); err != nil {
		return err
	}
	if _, exists, err := lstat(in.dir.config(saved)); err != nil {
		return err
	} else if !exists { // promote was killed between its two renames
		if err := in.clone(in.dir.config(previous), in.dir.config(saved)); err != nil {
			return err
		}
	}
	if err := in.stageGeneration(saved); err != nil {
		return err
	}
	// Where the executable had not been replaced yet, its rename does nothing:
	// rename(2) of two names of one file. commit deletes what that leaves.
	if err := in.commit(); err != nil {
		return err
	}
	return in.forgetSaved()
}

// forgetSaved deletes what save kept, the sign of an update first.
func (in *installer) forgetSaved() error {
	return errors.Join(in.remove(in.dir.executable(saved)), in.remove(in.dir.config(saved)))
}
