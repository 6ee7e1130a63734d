package install

import (
	"context"
	"fmt"
	"os"
)

// recover completes or undoes the work of a killed installer.
func (in *installer) recover(ctx context.Context) error {
	err := in.recoverStage()
	if err == nil {
		err = in.recoverUpdate(ctx)
	}
	if err != nil {
		return fmt.Errorf("clean up after an installer that was killed: %w", err)
	}
	return nil
}

// recoverUpdate completes or undoes an unfinished update. Its sign is the saved executable.
func (in *installer) recoverUpdate(ctx context.Context) error {
	if exists, err := checkDriverDir(in.dir); err != nil || !exists {
		return err
	}
	old, left, err := lstat(in.dir.executable(saved))
	if err != nil {
		return err
	}
	now, exists, err := lstat(in.dir.executable(current))
	if err != nil {
		return err
	}
	if !left || !exists { // killed in save, or in an uninstallation
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
