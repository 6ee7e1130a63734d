package flex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/guard"
)

// Main is the main function of a driver: it answers the callout in the
// process's arguments and returns the exit status.
//
//	func main() { os.Exit(flex.Main(driver())) }
//
// It is [Program] with nothing more than the driver.
func Main(d *Driver) int {
	p := Program{Name: filepath.Base(os.Args[0]), Driver: func(*Invocation) *Driver { return d }}
	return p.Run(os.Args)
}

// Program is a driver as a program, with flags for people before the callout: --log-file,
// -v, --timeout, --dry-run, --exit-code and --help.
type Program struct {
	// Name is what the program calls itself in messages and in the journal.
	Name string
	// Flags adds the program's own flags. It is optional. The kubelet passes none, so
	// in its calls each flag has its default.
	Flags func(*pflag.FlagSet)
	// ZeroFlags says that the default of each flag is its zero value, so that the kubelet's
	// calls need not set it.
	ZeroFlags bool
	// Driver returns the driver for an invocation. Streams, arguments and signals are under
	// control by then. init waits for it, so it must not be slow.
	Driver func(*Invocation) *Driver
}

// Run answers the callout in args, which begins with the program's own path, and returns
// the exit status.
//
// First of all it takes file descriptors 1 and 2 away, because the kubelet
// reads both as one stream (pkg/volume/flexvolume/driver-call.go:136): what
// a library or a child prints is lost. Then it overwrites the arguments where other users
// can read them, in /proc/PID/cmdline: secrets are among them. The answer is that of the
// function [Run].
//
// The status is 0 whatever the answer, unless --exit-code is given. With any other the
// kubelet would log the whole argument list, base64 secrets included (driver-call.go:149).
func (p *Program) Run(args []string) int {
	reply, guardErr := guard.ClaimOutput() // the reply is good even with an error
	defer reply.Close()                    //nolint:staticcheck // SA5001: see above
	in := p.invocation(args, reply, guardErr)
	status := p.call(in)
	_, _ = in.Write(status.Encode()) // without a reader there is no one to tell
	in.explain(status)
	if in.exitCode && status.Status != StatusSuccess {
		return 1
	}
	return 0
}

// call does the call in a goroutine, under signals. init has neither: there is nothing to
// interrupt in it, and the kubelet waits for it under a lock; they would cost a fifth of the
// time of the whole process.
func (p *Program) call(in *Invocation) DriverStatus {
	first := &phase{name: "the driver", ctx: context.Background(), redactor: NewRedactor(Options{}), graceAfterSignal: 500 * time.Millisecond}
	w := newWorker(first)
	first.do = func() (DriverStatus, error) { return p.answer(w, in) }
	if in.is(CommandInit) && !in.byHand {
		first.name = "init"
		w.work()
		return <-w.done
	}
	w.catchSignals()
	return w.run()
}

// Invocation is one run of a [Program].
type Invocation struct {
	// Path is what the program was called by.
	Path string
	// Args are the callout and its arguments.
	Args []string

	name              string // the program's
	logFile           string
	dryRun, exitCode  bool
	verbosity         int
	timeout           time.Duration
	byHand            bool // there are flags
	flagErr, guardErr error

	reply *guard.Reply
	start time.Time
	log   *slog.Logger // nil: there is none

	// text is what is written in place of the answer: a plan, or help. It is atomic because
	// answer may still run when Write is called.
	text atomic.Pointer[string]
}

func (p *Program) invocation(args []string, reply *guard.Reply, guardErr error) *Invocation {
	in := &Invocation{name: p.Name, Path: args[0], Args: args[1:], reply: reply, guardErr: guardErr, start: time.Now()}
	// The kubelet's calls have no flags, and skip the parser: answer sets the defaults.
	if len(in.Args) > 0 && strings.HasPrefix(in.Args[0], "-") {
		set := p.flags(in)
		in.byHand = true
		in.flagErr = set.Parse(in.Args)
		in.Args = set.Args()
	}
	if len(in.Args) > 0 {
		in.Args = append(in.Args[:1:1], guard.HideArgs(in.Args[1:])...)
	}
	return in
}

func (in *Invocation) is(c Command) bool { return len(in.Args) > 0 && in.Args[0] == string(c) }

// flags returns those of the program and of p, for in.
func (p *Program) flags(in *Invocation) *pflag.FlagSet {
	set := pflag.NewFlagSet(p.Name, pflag.ContinueOnError)
	set.SetInterspersed(false) // what follows the callout is its own
	set.SetOutput(io.Discard)
	set.Usage = func() {
		in.show(fmt.Sprintf("Usage: %s [flags] CALLOUT ARGUMENT...\n\nA FlexVolume driver: the kubelet calls it. Callouts are %s.\n\nFlags, for people, stand before the callout:\n\n%s", p.Name, commandList(), set.FlagUsagesWrapped(80)))
	}
	if p.Flags != nil {
		p.Flags(set)
	}
	set.StringVar(&in.logFile, "log-file", "", "append a log to this `file`; \"journal\" for the journal of systemd")
	set.DurationVar(&in.timeout, "timeout", 0, "how long the callout may take (default: the driver's, else 110s, waitforattach 9m)")
	set.BoolVar(&in.dryRun, "dry-run", false, "say what would be done, step by step, and do nothing")
	set.BoolVar(&in.exitCode, "exit-code", false, "end with status 1 unless the answer is Success")
	set.CountVarP(&in.verbosity, "verbose", "v", "say more: to the log file, or else to a terminal")
	return set
}

// FlagSet returns the flags, for a text about them.
func (p *Program) FlagSet() *pflag.FlagSet { return p.flags(&Invocation{}) }

// Write sends the answer on its way, or what stands for it.
func (in *Invocation) Write(answer []byte) (int, error) {
	if text := in.text.Load(); text != nil {
		answer = []byte(*text)
	}
	return in.reply.Write(answer)
}

func (in *Invocation) show(text string) { in.text.Store(&text) }

// answer does the call: what comes first, then the callout.
func (p *Program) answer(w *worker, in *Invocation) (DriverStatus, error) {
	if p.Flags != nil && !p.ZeroFlags && !in.byHand {
		p.flags(in) // here a panic has an answer
	}
	switch {
	case errors.Is(in.flagErr, pflag.ErrHelp):
		return Success(), nil
	case in.flagErr != nil:
		return DriverStatus{}, Errorf(CodeInvalidArgument, "%w; see %s --help", in.flagErr, p.Name)
	case in.guardErr != nil && !in.is(CommandInit):
		return DriverStatus{}, Errorf(CodeInternal, "cannot guard the answer, nothing was done: %w", in.guardErr)
	}
	d, ctx := in.adjust(p.Driver(in)), w.phase.ctx
	if log := in.Log("", slog.LevelInfo); log != nil {
		ctx = context.WithValue(ctx, logKey{}, log)
	}
	callout, status := d.begin(ctx, in.Args)
	if callout == nil {
		in.logAnswer(status)
		return status, nil
	}
	callout.log = in.logAnswer
	return w.enter(callout)
}

// adjust returns the driver as the flags want it.
func (in *Invocation) adjust(d *Driver) *Driver {
	if d == nil || !in.byHand {
		return d
	}
	adjusted := *d
	if in.timeout > 0 {
		adjusted.Timeout = func(Command) time.Duration { return in.timeout }
	}
	if in.dryRun && d.Handle != nil {
		adjusted.Handle = in.plan(d.Plan)
	}
	return &adjusted
}

// plan returns the Handle of --dry-run.
func (in *Invocation) plan(steps func(context.Context, *Call) ([]string, error)) func(context.Context, *Call) (DriverStatus, error) {
	return func(ctx context.Context, call *Call) (DriverStatus, error) {
		if steps == nil {
			return DriverStatus{}, Errorf(CodeUnimplemented, "this driver cannot say what it would do (it has no Plan); nothing was done")
		}
		plan, err := steps(ctx, call)
		if err != nil {
			return DriverStatus{}, err
		}
		redact := NewRedactor(call.Options).Redact
		var text strings.Builder
		for i, step := range plan {
			fmt.Fprintf(&text, "%2d. %s\n", i+1, redact(step))
		}
		in.show(text.String())
		return Success(), nil
	}
}

// explain tells a person at a terminal what the answer means.
func (in *Invocation) explain(status DriverStatus) {
	if in.reply.Human == nil || in.text.Load() != nil {
		return
	}
	took := time.Since(in.start).Round(100 * time.Microsecond)
	switch status.Status {
	case StatusSuccess:
		fmt.Fprintf(in.reply.Human, "done in %v\n", took)
	case StatusNotSupported:
		fmt.Fprintf(in.reply.Human, "not supported: the kubelet does what it does by default, and remembers not to ask again\n")
	default:
		fmt.Fprintf(in.reply.Human, "failed (%s) after %v: %s\n", status.Code, took, status.Message)
	}
}
