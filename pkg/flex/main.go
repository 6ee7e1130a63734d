package flex

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/flex2csi/flex2csi/internal/argv"
	"github.com/flex2csi/flex2csi/internal/fdguard"
)

// Main is the main function of a driver: it answers the callout in the
// process's arguments and returns the exit status.
//
//	func main() { os.Exit(flex.Main(driver())) }
//
// First of all it takes file descriptors 1 and 2 away, because the kubelet
// reads both as one stream (pkg/volume/flexvolume/driver-call.go:136): what
// a library or a child prints is lost. Then it overwrites the arguments where other users
// can read them, in /proc/PID/cmdline: secrets are among them. Then see [Serve]
// and [Run]. flexdriver does not use it: it calls [Serve], to read its
// configuration before [Run].
//
// The status is 0 whatever the answer. With any other the kubelet would log
// the whole argument list, base64 secrets included (driver-call.go:149).
func Main(d *Driver) int {
	reply, claimErr := fdguard.Claim() // the reply is good even with an error
	args := argv.Hide(os.Args[1:])
	isInit := len(args) > 0 && args[0] == string(CommandInit)
	serve := Serve
	if isInit {
		serve = ServeInit
	}
	_, _ = serve(reply, func(ctx context.Context) DriverStatus {
		if claimErr != nil && !isInit {
			return Failure(Errorf(CodeInternal, "cannot guard the answer, nothing was done: %w", claimErr))
		}
		return Run(ctx, d, args)
	})
	_ = reply.Close()
	return 0
}

// Serve is the part of [Main] for programs that have something to do before
// [Run], such as reading a configuration: it calls answer once and writes the
// encoded status to w, whatever happens. w should be what [Main] uses; an error
// is that of w.
//
// The context that answer gets ends at SIGTERM, SIGINT and SIGQUIT, with the
// signal in its cause; if answer has not returned some 500 ms later, the status
// is a Failure. SIGPIPE and SIGHUP are ignored. A panic in answer is a Failure.
// The signals stay caught when Serve returns, because a process that dies by
// one after its answer has made the answer void: exit next.
func Serve(w io.Writer, answer func(context.Context) DriverStatus) (DriverStatus, error) {
	ctx := signalContext()
	done := make(chan outcome, 1)
	go protect("the driver", done, func() (DriverStatus, error) { return answer(ctx), nil })
	return deliver(w, awaitAnswer(ctx, done).status(ctx, "the driver"))
}

// ServeInit is [Serve] for init, and for nothing else: it survives a panic, but
// catches no signals and starts no goroutine. There is nothing to interrupt in
// init and no secret in its arguments, and the kubelet waits for it under
// a lock; the rest would cost a fifth of the time of the whole process.
func ServeInit(w io.Writer, answer func(context.Context) DriverStatus) (DriverStatus, error) {
	ctx := context.Background()
	done := make(chan outcome, 1)
	protect("init", done, func() (DriverStatus, error) { return answer(ctx), nil })
	return deliver(w, (<-done).status(ctx, "init"))
}

func deliver(w io.Writer, status DriverStatus) (DriverStatus, error) {
	status = NewRedactor(Options{}).status(status)
	_, err := w.Write(status.Encode())
	return status, err
}

// awaitAnswer leaves Run, inside answer, the time for its own grace.
func awaitAnswer(ctx context.Context, done <-chan outcome) outcome {
	select {
	case o := <-done:
		return o
	case <-ctx.Done():
	}
	grace := graceAfterSignal + 200*time.Millisecond
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case o := <-done:
		return o
	case <-timer.C:
		return outcome{stuck: grace}
	}
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal os.Signal }

func (i *interrupted) Error() string {
	return "interrupted by the signal \"" + i.signal.String() + "\""
}

// signalContext returns a context that the first signal to end ends. SIGHUP is
// caught, not set to ignored, because children inherit that. SIGPIPE needs
// nothing: Go ends the process by it only after a write of package os to
// descriptor 1 or 2, which are /dev/null here (os/signal, "SIGPIPE"), and each
// signal that is caught costs a call some 20 µs.
func signalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGHUP)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	go func() {
		cancel(&Error{Code: CodeCanceled, Err: &interrupted{<-end}})
	}()
	return ctx
}
