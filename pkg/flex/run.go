package flex

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run parses the arguments of a callout (without the program's name), has the
// driver's Handle do it and returns the answer.
//
// It never panics and never outlives the callout's deadline by more than a
// second: at the deadline, or when ctx ends, the context of Handle is
// cancelled ([context.Cause] tells why), and after a short grace the answer is
// given whether or not Handle has returned. A panic in Handle is a
// Failure. Every message goes through a [Redactor] with the call's secrets.
//
// In this order: an unknown callout and one that the driver does not have are "Not
// supported", whatever the arguments; init is a Success with the driver's
// capabilities, also with surplus arguments; bad arguments are a Failure that
// says what was expected.
func Run(ctx context.Context, d *Driver, args []string) DriverStatus {
	p, status := d.begin(ctx, args)
	if p == nil {
		return status
	}
	defer p.cancel()
	return newWorker(p).run()
}

// begin returns the phase that does a callout, or the answer to one that needs none.
func (d *Driver) begin(ctx context.Context, args []string) (p *phase, status DriverStatus) {
	defer func() {
		if recover() != nil { // its text may hold a secret that no Redactor knows yet
			p, status = nil, panicked()
		}
	}()
	if d == nil {
		d = &Driver{}
	}
	if len(args) > 0 && args[0] == string(CommandInit) {
		capabilities := d.Capabilities
		return nil, DriverStatus{Status: StatusSuccess, Capabilities: &capabilities}
	}
	if len(args) > 0 && !d.does(Command(args[0])) {
		return nil, notSupported(args[0])
	}
	call, err := ParseCall(args)
	if err != nil {
		return nil, NewRedactor(Options{}).status(Failure(err))
	}
	timeout := d.timeout(call.Command)
	p = &phase{name: string(call.Command), redactor: NewRedactor(call.Options), graceAfterSignal: 300 * time.Millisecond}
	p.ctx, p.cancel = context.WithTimeoutCause(ctx, timeout, Errorf(CodeDeadlineExceeded, "still in progress after %v", timeout))
	p.do = func() (DriverStatus, error) { return d.Handle(p.ctx, call) }
	return p, DriverStatus{}
}

func panicked() DriverStatus {
	return Failure(Errorf(CodeInternal, "the driver panicked: this is a bug in it"))
}

// notSupported is for what never changes while this binary is in place.
func notSupported(command string) DriverStatus {
	message := describe(command) + " is no callout of the FlexVolume protocol that this driver knows: want one of " + commandList()
	if Command(command).Known() {
		message = command + " is not something that this driver does"
	}
	return NewRedactor(Options{}).status(DriverStatus{Status: StatusNotSupported, Message: message, Code: CodeUnimplemented})
}

// A phase is a part of a call that may take long: what a program does first, and the callout.
type phase struct {
	name string // for messages
	do   func() (DriverStatus, error)
	// ctx tells do to end: at the deadline, by a signal, or for the caller of Run.
	ctx    context.Context
	cancel context.CancelFunc
	// graceAfterSignal is how long do may take to end after a signal. The kubelet that
	// sent SIGTERM is about to give up on us, hence less than graceAfterDeadline.
	graceAfterSignal time.Duration
	redactor         *Redactor
	log              func(DriverStatus) // nil: there is no log
}

// answer returns the answer for an outcome of the phase.
func (p *phase) answer(o outcome) DriverStatus {
	return p.redactor.status(o.status(p.ctx, p.name))
}

// outcome is what came of a phase, or that nothing came.
type outcome struct {
	answer DriverStatus
	err    error
	stuck  time.Duration // it did not even stop in this time
}

// status turns the outcome into the answer. A success that came late is a
// success: the kubelet must not take what is done for failed.
func (o outcome) status(ctx context.Context, name string) DriverStatus {
	switch {
	case o.stuck == 0 && o.err == nil:
		return o.answer
	case o.stuck == 0 && (ctx.Err() == nil || isOwnError(o.err)):
		return Failure(o.err)
	}
	cause := context.Cause(ctx)
	detail := ""
	switch {
	case o.stuck > 0:
		detail = fmt.Sprintf(" (and has not stopped within %v)", o.stuck)
	case !errors.Is(cause, o.err) && !errors.Is(ctx.Err(), o.err):
		detail = fmt.Sprintf(" (%v)", o.err)
	}
	return Failure(Errorf(CodeOf(cause), "%s: %w%s; call again", name, cause, detail))
}

// isOwnError reports whether an error that came after the end of the context has
// another cause than that end. "Still in progress" would be wrong then.
func isOwnError(err error) bool {
	switch CodeOf(err) {
	case CodeInvalidArgument, CodeNotFound, CodeAlreadyExists, CodeFailedPrecondition, CodePermissionDenied:
		return true
	}
	return false
}
