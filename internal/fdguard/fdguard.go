// Package fdguard takes the standard output and error away from a process that
// must answer with exactly one piece of text and nothing else.
//
// The caller of a FlexVolume driver reads both streams as one and until the
// last writer has closed them (Kubernetes v1.37.1,
// pkg/volume/flexvolume/driver-call.go:136). One line of a library's log makes
// the answer unreadable, and a child that inherits a stream keeps the caller
// waiting for as long as it lives. Discipline does not help against that; so
// [Claim] moves the stream to a private descriptor that children do not get,
// and puts /dev/null where everybody else looks.
//
// Do not use it in a program that talks to people only, and not in a library.
package fdguard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stdout = 1
	stderr = 2

	// first is the lowest descriptor for what we keep: never a standard one.
	first = 3

	// patience bounds one write. A pipe that is full because nobody reads it
	// must not keep us for ever; what reads it at all reads it within this.
	patience = 5 * time.Second
)

// Reply is where the answer goes: what was the standard output.
type Reply struct {
	// Human is the terminal of the person who called us, or nil if what was
	// the standard error is no terminal.
	Human io.Writer

	fd       int
	patience time.Duration
}

// Claim takes descriptors 1 and 2 away; they are /dev/null afterwards, also
// for children that inherit them. Call it first thing in main, and once.
//
// It returns a Reply that can be written to even with an error. With one, the
// descriptors are not, or not both, taken away.
//
// Closed descriptors are no error: Go's runtime opens /dev/null in their place
// before main (runtime/fds_unix.go), and the answer goes nowhere.
func Claim() (*Reply, error) {
	fd, err := unix.FcntlInt(stdout, unix.F_DUPFD_CLOEXEC, first)
	if err != nil {
		return &Reply{fd: stdout, patience: patience}, fmt.Errorf("cannot duplicate the standard output: %w", err)
	}
	r := &Reply{fd: fd, patience: patience}
	r.findHuman()
	sink, err := openSink()
	if err != nil {
		return r, err
	}
	defer unix.Close(sink)
	return r, point(sink)
}

// findHuman keeps the standard error, but only if somebody sits there: in any
// other case it is the same pipe as the standard output.
func (r *Reply) findHuman() {
	if _, err := unix.IoctlGetTermios(stderr, unix.TCGETS); err != nil {
		return
	}
	if fd, err := unix.FcntlInt(stderr, unix.F_DUPFD_CLOEXEC, first); err == nil {
		r.Human = os.NewFile(uintptr(fd), "standard error")
	}
}

// openSink opens something that swallows what is written. /dev/null can be
// missing in a bare container; then an unnamed file has to do.
func openSink() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		return fd, nil
	}
	fd, memErr := unix.MemfdCreate("null", unix.MFD_CLOEXEC)
	if memErr != nil {
		return -1, fmt.Errorf("cannot open /dev/null (%w) nor a file in memory (%w)", err, memErr)
	}
	return fd, nil
}

// point makes fd the standard output and error.
func point(fd int) error {
	for _, standard := range []int{stdout, stderr} {
		if err := unix.Dup3(fd, standard, 0); err != nil {
			return fmt.Errorf("cannot replace file descriptor %d: %w", standard, err)
		}
	}
	return nil
}

// Divert sends what others write to the standard output and error to f, a log,
// rather than to /dev/null. Children inherit it.
func (r *Reply) Divert(f *os.File) error { return point(int(f.Fd())) }

// ErrStuck is the error of a Write that the reader did not take in time.
var ErrStuck = errors.New("nobody reads the answer")

// Write writes p and returns after at most five seconds, with ErrStuck if
// the reader has not taken it by then; the rest may be written later.
func (r *Reply) Write(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	p = append([]byte(nil), p...) // the writer may outlive the call
	done := make(chan result, 1)
	go func() {
		n, err := writeAll(r.fd, p)
		done <- result{n, err}
	}()
	timer := time.NewTimer(r.patience)
	defer timer.Stop()
	select {
	case res := <-done:
		return res.n, res.err
	case <-timer.C:
		return 0, ErrStuck
	}
}

// writeAll is write(2) without package os, which would switch the descriptor
// to non-blocking: the file description belongs to the caller as well. It may
// already be non-blocking, hence poll(2).
func writeAll(fd int, p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := unix.Write(fd, p[written:])
		if n > 0 {
			written += n
		}
		switch {
		case err == nil, errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, -1)
		default:
			return written, fmt.Errorf("cannot write the answer: %w", err)
		}
	}
	return written, nil
}

// Close closes what Claim has kept.
func (r *Reply) Close() error {
	if r.fd == stdout {
		return nil
	}
	return unix.Close(r.fd)
}
