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

	// patience bounds one write. A full pipe without a reader must not block us for
	// ever; a working reader reads within this time.
	patience = 5 * time.Second

	// page is what a pipe that has any room takes at once: PIPE_BUF.
	page = 4096

	// spare is how many descriptors Go's runtime needs for its first timer. It
	// aborts the process when it does not get them.
	spare = 2
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
	sink, err := openSink("/dev/null")
	if err != nil {
		return r, err
	}
	defer unix.Close(sink)
	if err := point(sink); err != nil {
		return r, err
	}
	return r, checkSpare(sink)
}

// checkSpare makes sure that more descriptors can be had.
func checkSpare(fd int) error {
	for range spare {
		extra, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, first)
		if err != nil {
			return fmt.Errorf("too few file descriptors are allowed to this process: %w", err)
		}
		defer unix.Close(extra)
	}
	return nil
}

// findHuman keeps the standard error, but only if it is a terminal. Otherwise it is
// the same pipe as the standard output.
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
func openSink(devNull string) (int, error) {
	fd, err := unix.Open(devNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		return fd, nil
	}
	fd, memErr := unix.MemfdCreate("null", unix.MFD_CLOEXEC)
	if memErr != nil {
		return -1, fmt.Errorf("cannot open %s (%w) nor a file in memory (%w)", devNull, err, memErr)
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

// ErrStuck is the error of a Write that the reader did not take in time.
var ErrStuck = errors.New("no process reads the answer")

// Write writes p and returns after at most five seconds without progress, with
// ErrStuck if a pipe is still full by then.
//
// It is poll(2) and write(2) without package os, which would make the
// descriptor non-blocking: the file description belongs to the caller as well.
// A pipe that polls writable takes a whole page without blocking.
func (r *Reply) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		if err := r.awaitRoom(); err != nil {
			return written, err
		}
		n, err := unix.Write(r.fd, p[written:min(len(p), written+page)])
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return written, fmt.Errorf("cannot write the answer: %w", err)
		}
		written += max(n, 0)
	}
	return written, nil
}

// awaitRoom waits until something can be written, an error included.
func (r *Reply) awaitRoom() error {
	deadline := time.Now().Add(r.patience)
	for {
		fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, max(0, int(time.Until(deadline).Milliseconds())+1))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("cannot wait for the reader of the answer: %w", err)
		case time.Now().After(deadline):
			return ErrStuck
		}
	}
}

// Close closes what Claim has kept.
func (r *Reply) Close() error {
	if r.fd == stdout {
		return nil
	}
	return unix.Close(r.fd)
}
