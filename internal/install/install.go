package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

const (
	executableMode = 0o755
	dirMode        = 0o755
	maxExecutable  = 512 << 20
)

// Install installs or updates the driver. It keeps a program of other make that it
// replaces, for Uninstall with Restore, and refuses while that program has volumes
// attached and mounted. It returns nil only if init, run from the final
// path, answers with the configuration's capabilities. If that fails, it restores the
// version before. It changes nothing if executable and configuration are up to date.
func Install(ctx context.Context, o Options) (Report, error) {
	return run(ctx, o, "install", (*installer).install)
}

// Uninstall removes the driver and its directory. Without Force it refuses while volumes of
// the driver are mounted, or if the directory has files of others, and leaves a program of
// other make that has overwritten the driver. With Restore it puts back what Install kept.
// It is no error if the driver does not exist.
func Uninstall(ctx context.Context, o Options) (Report, error) {
	return run(ctx, o, "uninstall", (*installer).uninstall)
}

// Removable returns why Uninstall would refuse. It changes nothing.
func Removable(ctx context.Context, o Options) error {
	_, err := run(ctx, o, "uninstall", (*installer).removable)
	return err
}

// content has the files to install.
type content struct{ executable, config []byte }

func (in *installer) install(ctx context.Context) error {
	want, err := in.wanted()
	if err != nil {
		return err
	}
	if err := checkExecutable(in.pluginDir, ""); err != nil {
		return err
	}
	in.warnOfOthers()
	if err := in.recover(ctx); err != nil {
		return err
	}
	exists, err := checkDriverDir(in.dir)
	if err != nil {
		return err
	}
	if exists {
		if err := in.refuseConfigured(); err != nil {
			return err
		}
		same, err := in.installed(want)
		if err != nil {
			return err
		}
		if same && !in.recovered {
			return in.confirm(ctx)
		}
		if err := in.keep(); err != nil {
			return err
		}
	}
	if err := in.makeStage(ctx, want); err != nil {
		return in.discard(err)
	}
	if exists {
		return in.update(ctx)
	}
	return in.first(ctx)
}

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

// confirm ends an installation of what is installed.
func (in *installer) confirm(ctx context.Context) error {
	if err := in.verify(ctx, in.dir.executable(current), in.capabilities()); err != nil {
		return fmt.Errorf("nothing to change, but the installed driver does not work: %w", err)
	}
	in.did("%s and its configuration are up to date: changed nothing", in.dir.executable(current))
	return nil
}

// wanted reads the files to install before any change. It reads the program once, so that
// the compared and the written content are the same.
func (in *installer) wanted() (want content, err error) {
	if in.Executable == "" {
		return want, errors.New("no executable given")
	}
	if want.executable, err = readExecutable(in.Executable); err != nil {
		return want, fmt.Errorf("read the executable to install: %w", err)
	}
	if in.Config == nil {
		return want, nil
	}
	if in.Config.Driver != in.Driver {
		return want, fmt.Errorf("the configuration is of driver %q", in.Config.Driver)
	}
	for _, dir := range []string{in.PluginDir, in.pluginDir} {
		if strings.HasPrefix(in.Config.Log.File, filepath.Clean(dir)+"/") {
			return want, fmt.Errorf("log.file %s is in the plugin directory, where each line written makes the kubelet run init: choose another place", in.Config.Log.File)
		}
	}
	want.config, err = in.Config.Encode()
	return want, err
}

func readExecutable(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(), info.Size() == 0:
		return nil, fmt.Errorf("%s is not a program", path)
	case info.Size() > maxExecutable:
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxExecutable>>20)
	}
	return os.ReadFile(path)
}

// installed reports whether want is installed.
func (in *installer) installed(want content) (bool, error) {
	executable, err := hasContent(in.dir.executable(current), want.executable, executableMode)
	if err != nil || !executable {
		return false, err
	}
	if in.Config == nil {
		program, err := recorded(in.dir)
		return program != "", err
	}
	return hasContent(in.dir.config(current), want.config, driverconfig.FileMode)
}

func hasContent(path string, want []byte, mode os.FileMode) (bool, error) {
	info, err := lstat(path)
	if err != nil || info == nil || info.Mode() != mode || info.Size() != int64(len(want)) {
		return false, err
	}
	got, err := os.ReadFile(path)
	return bytes.Equal(got, want), err
}

// first renames the stage: the kubelet has not seen anything of it.
func (in *installer) first(ctx context.Context) error {
	if err := in.complete(in.stage.executable(next)); err != nil {
		return in.discard(err)
	}
	in.did("renamed %s to %s: the kubelet finds the driver from here on", in.stage.path, in.dir.path)
	err := in.sync(in.pluginDir)
	if err == nil {
		err = in.verify(ctx, in.dir.executable(current), in.capabilities())
	}
	return in.conclude(err, "removed the driver again", func() error { return in.removeDir(in.dir) })
}

// conclude ends an installation that is in place. After an error it goes back.
func (in *installer) conclude(err error, what string, undo func() error) error {
	in.report.Changed = true
	if err == nil {
		in.did("ran %s init: it works", in.dir.executable(current))
		return nil
	}
	if undoErr := undo(); undoErr != nil {
		return both(err, fmt.Errorf("could not go back to the state before: %w", undoErr))
	}
	in.report.Changed = false
	in.did("%s", what)
	return fmt.Errorf("%w (%s)", err, what)
}
