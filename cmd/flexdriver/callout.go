package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/argv"
	"github.com/flex2csi/flex2csi/internal/attachlock"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/fdguard"
	"github.com/flex2csi/flex2csi/internal/handoff"
	"github.com/flex2csi/flex2csi/internal/local"
	"github.com/flex2csi/flex2csi/internal/pendingunmount"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// A callout is one call by the kubelet, or by a person who plays its part.
type callout struct {
	argv     []string
	guardErr error
	reply    *fdguard.Reply
	start    time.Time

	calloutFlags
	args    []string // the name of the callout and its arguments
	flagErr error

	// request is the ID of the request to the daemon; empty: there is no log that names it.
	request string

	// plan is the output of --dry-run. It is atomic because answer may still run when
	// Write is called.
	plan atomic.Pointer[string]
}

func newCallout(args []string, reply *fdguard.Reply, guardErr error) *callout {
	c := &callout{argv: args, guardErr: guardErr, reply: reply, start: time.Now()}
	c.args, c.flagErr = c.parseFlags()
	if len(c.args) > 0 {
		c.args = append(c.args[:1:1], argv.Hide(c.args[1:])...)
	}
	return c
}

// calloutFlags are for people; the kubelet passes none.
type calloutFlags struct {
	config, driver, kubeletDir, logFile string
	backend, socket, stateDir           string
	dryRun, exitCode                    bool
	verbosity                           int
	timeout                             time.Duration
	allowed                             driverconfig.Allowed
}

func (f *calloutFlags) set() *pflag.FlagSet {
	set := pflag.NewFlagSet("flexdriver", pflag.ContinueOnError)
	set.SetInterspersed(false) // what follows the callout is its own
	set.SetOutput(io.Discard)
	set.StringVar(&f.config, "config", "", "configuration `file` (default: .flexdriver.json next to the executable)")
	set.StringVar(&f.driver, "driver", "", "`vendor/name` of the driver (default: from the executable's path)")
	set.StringVar(&f.backend, "backend", "", "do without a configuration file, with this `backend`: local or csi")
	set.StringVar(&f.socket, "socket", "", "with the backend csi: flex2csi's socket (default: from the configuration, else "+wire.DefaultSocket+")")
	set.StringVar(&f.stateDir, "state-dir", "", "with the backend csi: flex2csi's `directory` of that name (default: that of the configuration, else "+pendingunmount.DefaultStateDir+")")
	registerAllowed(set, &f.allowed)
	set.StringVar(&f.kubeletDir, "kubelet-dir", "", "the kubelet's root `directory`; mount points may be anywhere below it (default: found from the path)")
	set.StringVar(&f.logFile, "log-file", "", "append a log to this `file`; \"journal\" for the journal of systemd")
	set.DurationVar(&f.timeout, "timeout", 0, "how long the callout may take (default: that of the configuration, else 110s, waitforattach 9m)")
	set.BoolVar(&f.dryRun, "dry-run", false, "say what would be done, step by step, and do nothing")
	set.BoolVar(&f.exitCode, "exit-code", false, "end with status 1 unless the answer is Success")
	set.CountVarP(&f.verbosity, "verbose", "v", "say more: to the log file, or else to a terminal")
	return set
}

// Write sends the answer on its way; with --dry-run that is the plan.
func (c *callout) Write(answer []byte) (int, error) {
	plan := c.plan.Load()
	if plan == nil {
		return c.reply.Write(answer)
	}
	if _, err := io.WriteString(c.reply, *plan); err != nil {
		return 0, err
	}
	return len(answer), nil
}

// answer does the call.
func (c *callout) answer(ctx context.Context) flex.DriverStatus {
	if c.flagErr != nil {
		return flex.Failure(flex.Errorf(flex.CodeInvalidArgument, "%w; see flexdriver --help", c.flagErr))
	}
	args := c.args
	if c.guardErr != nil && (len(args) == 0 || args[0] != string(flex.CommandInit)) {
		return flex.Failure(flex.Errorf(flex.CodeInternal, "cannot guard the answer, nothing was done: %w", c.guardErr))
	}
	config, configErr := c.configuration()
	log, closeLog := c.logger(config, args)
	defer closeLog()
	backend := c.newBackend(config, log)
	driver := backend.Driver()
	if c.dryRun {
		driver = c.dryRunDriver(backend)
	}
	driver.Capabilities = config.Capabilities
	driver.Timeout = c.timeoutOf(config)
	if configErr != nil {
		withoutConfiguration(driver, configErr)
	}
	status := flex.Run(ctx, driver, args) // which calls driver.Mount, for instance: that of the backend
	logCall(log, args, status, time.Since(c.start))
	return status
}

// parseFlags returns the callout and its arguments. The kubelet's calls have
// no flags, and skip the parser.
func (c *callout) parseFlags() ([]string, error) {
	args := c.argv[1:]
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return args, nil
	}
	set := c.set()
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	switch driverconfig.Backend(c.backend) {
	case "", driverconfig.BackendLocal, driverconfig.BackendCSI:
		return set.Args(), nil
	}
	return nil, fmt.Errorf("--backend %s is not known; there are local and csi", c.backend)
}

// A backend, [handoff.Backend] or [local.Backend], does the callouts, or says what it
// would do.
type backend interface {
	Driver() *flex.Driver
	Plan(ctx context.Context, call *flex.Call) ([]string, error)
}

func (c *callout) newBackend(config *driverconfig.Configuration, log *slog.Logger) backend {
	m := mounter.Mounter{Log: log}
	if config.Backend == driverconfig.BackendCSI {
		return &handoff.Backend{
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
	}
	return &local.Backend{
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
		AttachLocks:  attachlock.Dir(c.dir()),
		Log:          log,
	}
}

func (c *callout) timeoutOf(config *driverconfig.Configuration) func(flex.Command) time.Duration {
	return func(command flex.Command) time.Duration {
		if c.timeout > 0 {
			return c.timeout
		}
		return config.Timeout(command)
	}
}

// withoutConfiguration makes all callouts fail but those on the node that take
// something down, which need no configuration, and init, which must not fail.
func withoutConfiguration(d *flex.Driver, why error) {
	err := flex.Errorf(flex.CodeFailedPrecondition, "the driver is not configured: %w", why)
	if errors.Is(why, os.ErrNotExist) {
		err = flex.Errorf(flex.CodeFailedPrecondition, "%w; by hand, --backend=local does without", err)
	}
	fail := func(context.Context, *flex.Call) error { return err }
	failDevice := func(context.Context, *flex.Call) (string, error) { return "", err }
	d.Attach, d.WaitForAttach = failDevice, failDevice
	d.IsAttached = func(context.Context, *flex.Call) (bool, error) { return false, err }
	d.MountDevice, d.Mount, d.Detach, d.ExpandVolume, d.ExpandFS = fail, fail, fail, fail, fail
}

// explain tells a person at a terminal what the answer means.
func (c *callout) explain(status flex.DriverStatus) {
	if c.reply.Human == nil || c.plan.Load() != nil {
		return
	}
	took := time.Since(c.start).Round(100 * time.Microsecond)
	switch status.Status {
	case flex.StatusSuccess:
		fmt.Fprintf(c.reply.Human, "done in %v\n", took)
	case flex.StatusNotSupported:
		fmt.Fprintf(c.reply.Human, "not supported: the kubelet does what it does by default, and remembers not to ask again\n")
	default:
		fmt.Fprintf(c.reply.Human, "failed (%s) after %v: %s\n", status.Code, took, status.Message)
	}
}

// dryRunDriver is the driver of --dry-run: each callout says what it would do.
func (c *callout) dryRunDriver(b backend) *flex.Driver {
	plan := func(ctx context.Context, call *flex.Call) error {
		steps, err := b.Plan(ctx, call)
		if err != nil {
			return err
		}
		redact := flex.NewRedactor(call.Options).Redact
		var text strings.Builder
		for i, step := range steps {
			fmt.Fprintf(&text, "%2d. %s\n", i+1, redact(step))
		}
		answer := text.String()
		c.plan.Store(&answer)
		return nil
	}
	device := func(ctx context.Context, call *flex.Call) (string, error) { return "", plan(ctx, call) }
	return &flex.Driver{
		Attach: device, WaitForAttach: device,
		IsAttached:  func(ctx context.Context, call *flex.Call) (bool, error) { return true, plan(ctx, call) },
		MountDevice: plan, Mount: plan, Unmount: plan, UnmountDevice: plan, Detach: plan, ExpandVolume: plan, ExpandFS: plan,
	}
}
