package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/handoff"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// executable is where the driver lies. The kubelet calls it by its full path;
// the name that it was called by counts, since many drivers may be links to
// one file.
func (c *callout) executable() string {
	if strings.Contains(c.path, "/") {
		if path, err := filepath.Abs(c.path); err == nil {
			return path
		}
	}
	path, err := os.Executable()
	if err != nil {
		return c.path
	}
	return path
}

func (c *callout) dir() string { return filepath.Dir(c.executable()) }

// configuration always returns a usable configuration. With an error it is a default,
// and the error says why the driver's own is not used.
func (c *callout) configuration() (*driverconfig.Configuration, error) {
	name, err := c.driverName()
	config := driverconfig.Default(name, driverconfig.Backend(cmp.Or(c.backend, string(driverconfig.BackendLocal))))
	if err == nil && c.backend == "" {
		var loaded *driverconfig.Configuration
		if loaded, err = driverconfig.Load(c.configPath()); err == nil {
			err = belongs(loaded, name)
		}
		if err == nil {
			config = loaded
		}
	}
	if c.backend == "" && config.Backend != driverconfig.BackendCSI && c.isOfDaemon() {
		config = driverconfig.Default(name, driverconfig.BackendCSI)
	}
	if c.kubeletDir != "" {
		config.KubeletDir = filepath.Clean(c.kubeletDir)
	}
	switch {
	case config.Backend == driverconfig.BackendCSI:
		config.Socket, config.StateDir = cmp.Or(c.socket, config.Socket), cmp.Or(c.stateDir, config.StateDir)
		if c.socket != "" {
			config.ControllerSocket = "" // the caller has chosen the socket
		}
	case err == nil && c.socket+c.stateDir != "":
		err = fmt.Errorf("--socket and --state-dir are for the backend csi, and the backend is %s", config.Backend)
	}
	if err == nil {
		err = c.allow(config)
	}
	return config, err
}

// allow has a call by hand do what its flags allow. Where there is a
// configuration, that says it.
func (c *callout) allow(config *driverconfig.Configuration) error {
	given := c.allowed.MaxSize+c.allowed.MaxSizePerNamespace != "" || c.allowed.MaxImagesPerNamespace != 0 || len(c.allowed.ImageRoots)+len(c.allowed.DeviceRoots)+len(c.allowed.DirectoryRoots)+len(c.allowed.SourceTypes) > 0
	switch {
	case !given:
		return nil
	case driverconfig.Backend(c.backend) != driverconfig.BackendLocal:
		return errors.New("--image-root, --device-root, --directory-root, --source-type and --max-… go with --backend=local, which does without a configuration file; install a driver with them to have them in its file")
	}
	c.allowed.MaxSize = cmp.Or(c.allowed.MaxSize, config.MaxSize)
	c.allowed.MaxImagesPerNamespace = cmp.Or(c.allowed.MaxImagesPerNamespace, config.MaxImagesPerNamespace)
	config.Allowed = c.allowed
	return config.Allowed.Validate()
}

// isOfDaemon reports whether the call takes down what the daemon has set up,
// whatever the configuration says by now.
func (c *callout) isOfDaemon() bool {
	return len(c.args) > 1 && handoff.Owns(flex.Command(c.args[0]), c.args[1])
}

// driverName may be empty where it is not needed: by hand, with --config or
// --backend.
func (c *callout) driverName() (driverconfig.DriverName, error) {
	if c.driver != "" {
		return driverconfig.ParseDriverName(c.driver)
	}
	name, err := driverconfig.DriverOfExecutable(c.executable())
	if c.config != "" || c.backend != "" {
		err = nil
	}
	return name, err
}

func (c *callout) configPath() string {
	if c.config != "" {
		return c.config
	}
	return filepath.Join(c.dir(), driverconfig.FileName)
}

// belongs refuses the configuration of another driver, as after a copy of the
// directory by hand.
func belongs(config *driverconfig.Configuration, name driverconfig.DriverName) error {
	if name == (driverconfig.DriverName{}) || name == config.Driver {
		return nil
	}
	return fmt.Errorf("the configuration is that of the driver %s, not of %s (run flexdriver install for that)", config.Driver, name)
}
