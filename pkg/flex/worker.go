package flex

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// graceAfterDeadline is how long a callout may take to end after its deadline: it has to
// kill and reap its children.
const graceAfterDeadline = time.Second

// A worker is the one goroutine that does a call, phase after phase. Whatever happens in
// it, the goroutine that waits for it has an answer.
type worker struct {
	phase   *phase            // for the goroutine only
	entered chan *phase       // each later one
	done    chan DriverStatus // room for one, so that a late answer ends the goroutine

	// signals end the call; nil: there are none.
	signals   <-chan os.Signal
	interrupt context.CancelCauseFunc
}

func newWorker(first *phase) *worker {
	return &worker{phase: first, entered: make(chan *phase, 1), done: make(chan DriverStatus, 1)}
}

// enter goes on with another phase.
func (w *worker) enter(p *phase) (DriverStatus, error) {
	w.phase = p
	w.entered <- p
	return p.do()
}

// run starts the goroutine and returns its answer, or that there is none some time after
// it was told to end. A signal shortens a wait that the deadline began.
func (w *worker) run() DriverStatus {
	p := w.phase
	go w.work()
	var grace time.Duration
	var stuck <-chan time.Time
	ended := p.ctx.Done()
	for {
		select {
		case status := <-w.done:
			return status
		case p = <-w.entered:
			ended = p.ctx.Done()
		case <-ended:
			ended = nil
			if stuck == nil {
				grace, stuck = graceAfterDeadline, time.After(graceAfterDeadline)
			}
		case s := <-w.signals:
			w.signals = nil // another one would begin the wait again
			grace, stuck = p.graceAfterSignal, time.After(p.graceAfterSignal)
			w.interrupt(Errorf(CodeCanceled, "interrupted by the signal %q", s.String()))
		case <-stuck:
			status := p.answer(outcome{stuck: grace})
			p.logBriefly(status)
			return status
		}
	}
}

// logBriefly logs the answer for what is stuck, which may be the log itself.
func (p *phase) logBriefly(status DriverStatus) {
	if p.log == nil {
		return
	}
	logged := make(chan struct{})
	go func() { p.log(status); close(logged) }()
	select {
	case <-logged:
	case <-time.After(200 * time.Millisecond):
	}
}

// work sends the answer of the phases, whatever they do to the goroutine.
func (w *worker) work() {
	var o outcome
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			o = outcome{err: Errorf(CodeInternal, "%s panicked at %s: %v: this is a bug in the driver", w.phase.name, panicOrigin(), p)}
		case !returned: // by runtime.Goexit
			o = outcome{err: Errorf(CodeInternal, "%s ended without an answer: this is a bug in the driver", w.phase.name)}
		}
		w.finish(o)
	}()
	o.answer, o.err = w.phase.do()
	returned = true
}

// finish sends the answer, even if an error of the driver panics when it is looked at.
func (w *worker) finish(o outcome) {
	status := panicked()
	defer func() {
		_ = recover()
		w.done <- status
	}()
	status = w.phase.answer(o)
	if w.phase.log != nil {
		w.phase.log(status)
	}
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

// catchSignals ends the first phase's context at SIGTERM, SIGINT and SIGQUIT, and has
// SIGHUP ignored: caught, not set to ignored, because children inherit that. SIGPIPE needs
// nothing: Go ends the process by it only after a write of package os to
// descriptor 1 or 2, which are /dev/null here (os/signal, "SIGPIPE"), and each
// signal that is caught costs a call some 20 µs.
//
// The signals stay caught when the answer was given, because a process that dies by
// one after its answer has made the answer void.
func (w *worker) catchSignals() {
	w.phase.ctx, w.interrupt = context.WithCancelCause(w.phase.ctx)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	w.signals = end
}
