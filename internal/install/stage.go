package install

import (
	"context"
	"fmt"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// The stage is a dot-directory to prepare a version. The configuration has its final name,
// so that the executable finds it; the executable has a dot-name. All are dot-files, so that
// a kubelet that starts in this moment, and watches the stage, ignores the changes.

// makeStage prepares a version from new files, and runs its init. That must only succeed:
// the other parts of the answer may depend on the directory's name.
func (in *installer) makeStage(ctx context.Context, want content) error {
	if err := in.mkdir(in.stage.path); err != nil {
		return err
	}
	var err error
	if in.Config == nil {
		err = in.stageRecord(want.executable)
	} else {
		err = in.write(in.stage.config(current), want.config, driverconfig.FileMode)
	}
	if err != nil {
		return err
	}
	if err := in.write(in.stage.executable(next), want.executable, executableMode); err != nil {
		return err
	}
	in.did("wrote the new version to %s", in.stage.path)
	if err := in.verify(ctx, in.stage.executable(next), nil); err != nil {
		return fmt.Errorf("%w (changed nothing)", err)
	}
	return nil
}

// stageSaved prepares the version that save kept.
func (in *installer) stageSaved() error {
	if err := in.mkdir(in.stage.path); err != nil {
		return err
	}
	if err := ifThere(in.clone(in.dir.config(saved), in.stage.config(current))); err != nil {
		return err
	}
	return in.clone(in.dir.executable(saved), in.stage.executable(next))
}

// complete makes the stage the driver's directory. Last it gets the executable, and then its
// name.
func (in *installer) complete(executable string) error {
	if err := in.rename(executable, in.stage.executable(current)); err != nil {
		return err
	}
	if err := in.sync(in.stage.path); err != nil {
		return err
	}
	return in.renameNoReplace(in.stage.path, in.dir.path)
}

// discard deletes the stage after an error.
func (in *installer) discard(err error) error { return both(err, in.removeDir(in.stage)) }

// recoverStage deletes a stage without the final name of the executable. A stage with it is
// complete, and is renamed. It is not deleted: a kubelet that was started meanwhile watches
// it, would take the deletion for a change of a driver .vendor~name.new, and would try to
// run its init for ever.
func (in *installer) recoverStage() error {
	left, err := lstat(in.stage.path)
	if err != nil || left == nil {
		return err
	}
	complete, err := lstat(in.stage.executable(current))
	if err != nil {
		return err
	}
	driver, err := lstat(in.dir.path)
	if err != nil {
		return err
	}
	if complete == nil || driver != nil {
		in.did("removed %s, which an installer that was killed had left", in.stage.path)
		return in.removeDir(in.stage)
	}
	if err := in.renameNoReplace(in.stage.path, in.dir.path); err != nil {
		return fmt.Errorf("finish the installation: %w", err)
	}
	in.recovered = true
	in.did("finished the installation of an installer that was killed")
	return in.sync(in.pluginDir)
}
