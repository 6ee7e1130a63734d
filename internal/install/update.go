package install

import (
	"context"
	"errors"
	"fmt"
)

// update makes a version in the stage, and then the current one. It restores the version
// before if the new one does not work.
func (in *installer) update(ctx context.Context, want content) error {
	if err := in.stageContent(want); err != nil {
		return errors.Join(err, in.removeDir(in.stage))
	}
	if err := in.try(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w (changed nothing)", err), in.removeDir(in.stage))
	}
	kept, err := in.save()
	if err != nil {
		return errors.Join(err, in.removeDir(in.stage), in.removeLeftovers())
	}
	err = in.commit()
	if err == nil {
		in.did("renamed the new version into place: the kubelet runs init once")
		err = in.verify(ctx, in.dir.executable(current), in.capabilities())
	}
	if err != nil && kept {
		return in.undone(err, "put the earlier version back", in.restore())
	}
	if err != nil {
		return in.undone(err, "removed the executable again",
			errors.Join(in.remove(in.dir.executable(current)), in.removeDir(in.stage)))
	}
	in.report.Changed = true
	in.did("ran %s init: it works", in.dir.executable(current))
	return in.removeLeftovers()
}
