package flex

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// serve calls answer once and writes the encoded status to w, whatever happens.
//
// The context that answer gets ends at SIGTERM, SIGINT and SIGQUIT, with the
// signal in its cause; if answer has not returned some 500 ms later, the status
// is a Failure. SIGPIPE and SIGHUP are ignored. A panic in answer is a Failure.
// The signals stay caught when serve returns, because a process that dies by
// one after its answer has made the answer void: exit next.
func serve(w io.Writer, answer func(context.Context) DriverStatus) DriverStatus {
	ctx := signalContext()
	done := make(chan outcome, 1)
	go protect("the driver", done, func() (DriverStatus, error) { return answer(ctx), nil })
	return deliver(w, awaitAnswer(ctx, done).status(ctx, "the driver"))
}

// serveInit is serve for init, and for nothing else: it survives a panic, but
// catches no signals and starts no goroutine. There is nothing to interrupt in
// init and no secret in its arguments, and the kubelet waits for it under
// a lock; the rest would cost a fifth of the time of the whole process.
func serveInit(w io.Writer, answer func(context.Context) DriverStatus) DriverStatus {
	ctx := context.Background()
	done := make(chan outcome, 1)
	protect("init", done, func() (DriverStatus, error) { return answer(ctx), nil })
	return deliver(w, (<-done).status(ctx, "init"))
}

func deliver(w io.Writer, status DriverStatus) DriverStatus {
	status = NewRedactor(Options{}).status(status)
	_, _ = w.Write(status.Encode()) // without a reader there is no one to tell
	return status
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
