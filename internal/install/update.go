package install

import (
	"context"
	"errors"
	"fmt"
)

// update makes the version in the stage the current one, and restores the one before if the
// new one does not work.
func (in *installer) update(ctx context.Context) error {
	kept, err := in.save()
	if err != nil {
		return errors.Join(in.discard(err), in.removeLeftovers())
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
