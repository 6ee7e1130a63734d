package install

import (
	"context"
	"errors"
	"fmt"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

func (in *installer) update(ctx context.Context, want content) error {
	if err := in.stageContent(want); err != nil {
		return errors.Join(err, in.removeDir(in.stage))
	}
	return in.replace(ctx, in.capabilities())
}

func (in *installer) rollback(ctx context.Context) error {
	if err := checkExecutable(in.pluginDir); err != nil {
		return err
	}
	if err := in.recover(ctx); err != nil {
		return err
	}
	_, exists, err := lstat(in.dir.executable(previous))
	if err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("there is no earlier version (no %s): install the one you want", in.dir.executable(previous))
	}
	if err := in.stageGeneration(previous); err != nil {
		return errors.Join(fmt.Errorf("take the earlier version: %w", err), in.removeDir(in.stage))
	}
	in.did("took the earlier version from %s", in.dir.executable(previous))
	return in.replace(ctx, nil)
}

// replace makes the version in the stage the current one, and the current one
// the previous one. want is nil if the driver may answer any capabilities.
func (in *installer) replace(ctx context.Context, want *flex.Capabilities) error {
	if err := in.try(ctx); err != nil {
		return errors.Join(fmt.Errorf("%w (changed nothing)", err), in.removeDir(in.stage))
	}
	kept, err := in.save()
	if err != nil {
		return errors.Join(err, in.removeDir(in.stage), in.forgetSaved())
	}
	err = in.commit()
	if err == nil {
		in.did("renamed the new version into place: the kubelet runs init once")
		err = in.verify(ctx, in.dir.executable(current), want)
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
	return in.promote()
}
