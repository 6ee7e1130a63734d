package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// update makes the version in the stage the current one, and restores the one before if the
// new one does not work.
func (in *installer) update(ctx context.Context) error {
	kept, err := in.save()
	if err != nil {
		return both(in.discard(err), in.removeLeftovers())
	}
	if err = in.commit(); err == nil {
		in.did("renamed the new version into place: the kubelet runs init once")
		err = in.verify(ctx, in.dir.executable(current), in.capabilities())
	}
	what, undo := "put the earlier version back", in.restore
	if !kept {
		what, undo = "removed the executable again", in.removeExecutable
	}
	if err := in.conclude(err, what, undo); err != nil {
		return err
	}
	if err := in.removeLeftovers(); err != nil {
		return fmt.Errorf("the driver is installed, but the earlier version could not be removed: %w", err)
	}
	return nil
}

func (in *installer) removeExecutable() error {
	return in.discard(in.remove(in.dir.executable(current)))
}

// save links what is there to second names, the executable last: from then on its presence
// says that an update is under way. kept is false if there was no executable, as after an
// Uninstall that was killed.
func (in *installer) save() (kept bool, err error) {
	program, err := lstat(in.dir.executable(current))
	if err != nil || program == nil {
		return false, err
	}
	err = ifThere(in.clone(in.dir.config(current), in.dir.config(saved)))
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
	if err := ifThere(in.rename(in.stage.record(), in.dir.record())); err != nil {
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

// recoverUpdate completes or undoes an unfinished update. Its sign is the saved executable.
func (in *installer) recoverUpdate(ctx context.Context) error {
	if exists, err := checkDriverDir(in.dir); err != nil || !exists {
		return err
	}
	old, err := lstat(in.dir.executable(saved))
	if err != nil {
		return err
	}
	now, err := lstat(in.dir.executable(current))
	if err != nil {
		return err
	}
	if old == nil || now == nil { // killed in save, or in an uninstallation
		return in.removeLeftovers()
	}
	in.recovered = true
	if os.SameFile(old, now) { // killed before the executable was replaced
		in.did("undid the update of an installer that was killed")
		return in.restore()
	}
	if err := in.verify(ctx, in.dir.executable(current), nil); err != nil {
		in.did("put the earlier version back: an installer was killed, and what it installed does not work (%v)", err)
		return in.restore()
	}
	in.did("finished the update of an installer that was killed")
	return in.removeLeftovers()
}
