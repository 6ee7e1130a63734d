package install

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Options are the driver and where to install it.
type Options struct {
	// PluginDir is the kubelet's --volume-plugin-dir. It must exist: in a
	// directory that the kubelet does not read, the driver would only look installed.
	PluginDir string
	// Driver is the driver's name.
	Driver driverconfig.DriverName

	// Executable is the program that Install installs.
	Executable string
	// Config is the configuration that Install writes. Its driver is Driver. Nil:
	// Executable is a vendor's program, which Install records as its own.
	Config *driverconfig.Configuration

	// Recorded makes Uninstall remove a vendor's program, too, if Install has recorded it.
	Recorded bool

	// Force makes Uninstall remove a driver also while its volumes are mounted, and a
	// directory that has files of others in it.
	Force bool

	// Restore makes Uninstall put back the program of other make that Install kept.
	Restore bool

	// LockTimeout is how long to wait for another installer. Zero: 30 s.
	LockTimeout time.Duration
	// VerifyTimeout is how long init may take. Zero: 10 s.
	VerifyTimeout time.Duration
	// Mountinfo are the files in which Install looks for volumes that a program of other
	// make has attached, and Uninstall for all mounts of the driver.
	// Empty: those of this process and of process 1, so that an installer in a
	// container with the host's processes sees the host's mounts.
	Mountinfo []string

	// afterStep is called after each change to the disk. Tests kill the process
	// there, or have the change fail.
	afterStep func(step string) error
}

const (
	defaultLockTimeout   = 30 * time.Second
	defaultVerifyTimeout = 10 * time.Second
)

func (o *Options) setDefaults() {
	o.LockTimeout = cmp.Or(o.LockTimeout, defaultLockTimeout)
	o.VerifyTimeout = cmp.Or(o.VerifyTimeout, defaultVerifyTimeout)
	if len(o.Mountinfo) == 0 {
		o.Mountinfo = []string{"/proc/self/mountinfo", "/proc/1/mountinfo"}
	}
	if o.afterStep == nil {
		o.afterStep = func(string) error { return nil }
	}
}

func (o *Options) validate() error {
	if o.Driver == (driverconfig.DriverName{}) {
		return errors.New("no driver name given (want vendor/name)")
	}
	_, err := driverconfig.ParseDriverName(o.Driver.String())
	return err
}

// Timeouts parses deadlines of callouts, such as mount=60s.
func Timeouts(texts []string) (map[flex.Command]driverconfig.Duration, error) {
	var all map[flex.Command]driverconfig.Duration
	for _, text := range texts {
		command, value, _ := strings.Cut(text, "=")
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, fmt.Errorf("%s: want a callout and a duration, such as mount=60s: %w", text, err)
		}
		if all == nil {
			all = map[flex.Command]driverconfig.Duration{}
		}
		all[flex.Command(command)] = driverconfig.Duration(d)
	}
	return all, nil
}

// Report has what was done, also after an error.
type Report struct {
	// Dir is the driver's directory, without symbolic links.
	Dir string
	// Steps are what was done, in order. Warnings are for the operator, and begin with
	// [Warning].
	Steps, Warnings []string
	// Changed says that the driver has changed: only then the kubelet runs init again.
	Changed bool
}

// Warning begins a line that is a warning.
const Warning = "warning: "

// Lines returns all of it for the operator, the warnings last.
func (r Report) Lines() []string { return slices.Concat(r.Steps, r.Warnings) }
