package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/handoff"
	"github.com/flex2csi/flex2csi/internal/local"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A callout is one call by the kubelet, or by a person who plays its part.
type callout struct {
	path string   // of the executable, as it was called
	args []string // the name of the callout and its arguments
	// request is the ID of all requests to the daemon, which the log names.
	request string

	// Flags, which are for people; the kubelet passes none.
	config, driver, kubeletDir string
	backend, socket, stateDir  string
	allowed                    driverconfig.Allowed
}

// program is flexdriver as a FlexVolume driver.
func program() *flex.Program {
	c := &callout{}
	return &flex.Program{Name: "flexdriver", Flags: c.register, ZeroFlags: true, Driver: c.newDriver}
}

func (c *callout) register(set *pflag.FlagSet) {
	set.StringVar(&c.config, "config", "", "configuration `file` (default: .flexdriver.json next to the executable)")
	set.StringVar(&c.driver, "driver", "", "`vendor/name` of the driver (default: from the executable's path)")
	set.Func("backend", "do without a configuration file, with this `backend`: local or csi", c.setBackend)
	set.StringVar(&c.socket, "socket", "", "with the backend csi: flex2csi's socket (default: from the configuration, else "+wire.DefaultSocket+")")
	set.StringVar(&c.stateDir, "state-dir", "", "with the backend csi: flex2csi's `directory` of that name (default: that of the configuration, else "+statedir.DefaultStateDir+")")
	registerAllowed(set, &c.allowed)
	set.StringVar(&c.kubeletDir, "kubelet-dir", "", "the kubelet's root `directory`; mount points may be anywhere below it (default: found from the path)")
}

func (c *callout) setBackend(name string) error {
	switch driverconfig.Backend(name) {
	case "", driverconfig.BackendLocal, driverconfig.BackendCSI:
		c.backend = name
		return nil
	}
	return errors.New("there are local and csi")
}

// newDriver returns the driver that does the call.
func (c *callout) newDriver(in *flex.Invocation) *flex.Driver {
	c.path, c.args = in.Path, in.Args
	config, err := c.configuration()
	if config.Backend == driverconfig.BackendCSI {
		c.request = wire.NewID()
	}
	log := in.Log(config.Log.File, levelOf(config.Log.Level), volumelog.Subject{Request: c.request}.Attrs()...)
	driver := c.backendDriver(config, log)
	if err != nil {
		driver = withoutConfiguration(driver, err)
	}
	driver.Capabilities = config.Capabilities
	driver.Timeout = config.Timeout
	return driver
}

func levelOf(name driverconfig.LogLevel) slog.Level {
	level := slog.LevelInfo
	_ = level.UnmarshalText([]byte(name)) // validated; empty leaves info
	return level
}

// backendDriver returns the functions of the backend that the configuration names.
func (c *callout) backendDriver(config *driverconfig.Configuration, log *slog.Logger) *flex.Driver {
	m := mounter.Mounter{Log: log}
	if config.Backend == driverconfig.BackendCSI {
		backend := handoff.Backend{
			Name:             config.Driver.String(),
			Argv:             c.args,
			Request:          c.request,
			Socket:           config.Socket,
			StateDir:         config.StateDir,
			ControllerSocket: config.ControllerSocketOf(c.dir()),
			KubeletDir:       config.KubeletDir,
			Mounter:          m,
			Log:              log,
		}
		return backend.Driver()
	}
	backend := local.Backend{
		Mounter:        m,
		KubeletDir:     config.KubeletDir,
		DirectoryRoots: config.DirectoryRoots,
		ImageRoots:     config.ImageRoots,
		DeviceRoots:    config.DeviceRoots,
		SourceTypes:    config.SourceTypes,
		MaxSize:        config.MaxBytes(),

		MaxSizePerNamespace:   config.MaxBytesPerNamespace(),
		MaxImagesPerNamespace: config.MaxImagesPerNamespace,

		ApplyFSGroup: config.FSGroupPolicy == driverconfig.FSGroupDriver,
		AttachLocks:  statedir.AttachLocks(c.dir()),
		Log:          log,
	}
	return backend.Driver()
}

// withoutConfiguration returns a driver that fails all callouts but those on the node that
// take something down, which need no configuration.
func withoutConfiguration(d *flex.Driver, why error) *flex.Driver {
	err := flex.Errorf(flex.CodeFailedPrecondition, "the driver is not configured: %w", why)
	if errors.Is(why, os.ErrNotExist) {
		err = flex.Errorf(flex.CodeFailedPrecondition, "%w; by hand, --backend=local does without", err)
	}
	takesDown := func(c flex.Command) bool { return c == flex.CommandUnmount || c == flex.CommandUnmountDevice }
	return &flex.Driver{
		Handle: func(ctx context.Context, call *flex.Call) (flex.DriverStatus, error) {
			if takesDown(call.Command) {
				return d.Handle(ctx, call)
			}
			return flex.DriverStatus{}, err
		},
		Plan: func(ctx context.Context, call *flex.Call) ([]string, error) {
			if takesDown(call.Command) {
				return d.Plan(ctx, call)
			}
			return nil, err
		},
	}
}
