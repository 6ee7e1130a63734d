package flex

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime"
	"strings"
	"time"
)

// How long a callout may take to end after it was told to: it has to kill and
// reap its children. The kubelet that sent SIGTERM is about to give up on us,
// hence the shorter one.
const (
	graceAfterDeadline = time.Second
	graceAfterSignal   = 300 * time.Millisecond
)

// Run parses the arguments of a callout (without the program's name), calls
// the driver's function for it and returns the answer.
//
// It never panics and never outlives the callout's deadline by more than a
// second: at the deadline, or when ctx ends, the context of the function is
// cancelled ([context.Cause] tells why), and after a short grace the answer is
// given whether or not the function has returned. A panic in the function is a
// Failure. Every message goes through a [Redactor] with the call's secrets.
//
// In this order: an unknown callout and one without a function are "Not
// supported", whatever the arguments; init is a Success with the driver's
// capabilities, also with surplus arguments; bad arguments are a Failure that
// says what was expected.
func Run(ctx context.Context, d *Driver, args []string) (status DriverStatus) {
	defer func() {
		if recover() != nil { // its text may hold a secret that no Redactor knows yet
			status = Failure(Errorf(CodeInternal, "the driver panicked: this is a bug in it"))
		}
	}()
	if d == nil {
		d = &Driver{}
	}
	if len(args) > 0 && args[0] == string(CommandInit) {
		capabilities := d.Capabilities
		return DriverStatus{Status: StatusSuccess, Capabilities: &capabilities}
	}
	if len(args) > 0 && d.callout(Command(args[0])) == nil {
		return notSupported(args[0])
	}
	call, err := ParseCall(args)
	if err != nil {
		return NewRedactor(Options{}).status(Failure(err))
	}
	return NewRedactor(call.Options).status(d.run(ctx, call))
}

// notSupported is for what never changes while this binary is in place.
func notSupported(command string) DriverStatus {
	message := describe(command) + " is no callout of the FlexVolume protocol that this driver knows: want one of " + commandList()
	if Command(command).Known() {
		message = command + " is not something that this driver does"
	}
	return NewRedactor(Options{}).status(DriverStatus{Status: StatusNotSupported, Message: message, Code: CodeUnimplemented})
}

// run does one callout under its deadline.
func (d *Driver) run(parent context.Context, call *Call) DriverStatus {
	timeout := d.timeout(call.Command)
	ctx, cancel := context.WithTimeoutCause(parent, timeout,
		Errorf(CodeDeadlineExceeded, "still in progress after %v", timeout))
	defer cancel()

	f := d.callout(call.Command)
	done := make(chan outcome, 1) // room for one, so that a late answer ends the goroutine
	go protect(string(call.Command), done, func() (DriverStatus, error) { return f(ctx, call) })
	return await(ctx, parent, done).status(ctx, string(call.Command))
}

// outcome is what came of a function, or that nothing came.
type outcome struct {
	answer DriverStatus
	err    error
	stuck  time.Duration // it did not even stop in this time
}

// protect sends the outcome of f, whatever f does to its goroutine.
func protect(name string, done chan<- outcome, f func() (DriverStatus, error)) {
	var o outcome
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			o = outcome{err: Errorf(CodeInternal, "%s panicked at %s: %v: this is a bug in the driver", name, panicOrigin(), p)}
		case !returned: // f has ended the goroutine by runtime.Goexit
			o = outcome{err: Errorf(CodeInternal, "%s ended without an answer: this is a bug in the driver", name)}
		}
		done <- o
	}()
	o.answer, o.err = f()
	returned = true
}

// panicOrigin says where the panic that is being recovered started: a whole
// stack does not fit into an event of a pod.
func panicOrigin() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	inPanic := false
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") && inPanic {
			dir, file := path.Split(frame.File)
			return fmt.Sprintf("%s:%d", path.Join(path.Base(dir), file), frame.Line)
		}
		inPanic = inPanic || frame.Function == "runtime.gopanic"
	}
	return "an unknown place"
}

// await returns the outcome, or that there is none some time after ctx ended.
// parent is the part of ctx that a signal ends: it shortens a wait that the
// deadline began.
func await(ctx, parent context.Context, done <-chan outcome) outcome {
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	grace := graceAfterDeadline
	timer := time.NewTimer(grace)
	defer timer.Stop()
	parentDone := parent.Done()
	for {
		select {
		case o := <-done:
			return o
		case <-parentDone:
			parentDone = nil
			if isSignal(context.Cause(parent)) {
				grace = graceAfterSignal
				timer.Reset(grace)
			}
		case <-timer.C:
			return outcome{stuck: grace}
		}
	}
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

func isSignal(err error) bool {
	_, ok := errors.AsType[*interrupted](err)
	return ok
}
