//go:build linux

package guard

// This file protects the standard output and error of a process that must write
// exactly one answer.
//
// The kubelet reads both streams of a FlexVolume driver as one, until the last writer has
// closed them (Kubernetes v1.37.1, pkg/volume/flexvolume/driver-call.go:136). One line of a
// library's log makes the answer unreadable, and a child that inherits a stream blocks the
// kubelet until it exits. So [Claim] moves the stream to a private descriptor that children
// do not inherit, and replaces both streams by /dev/null.
//
// Do not use it in interactive programs or in a library.

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

	// first is the lowest descriptor for our own files: never a standard one.
	first = 3

	// patience bounds one write. A full pipe without a reader must not block us for
	// ever; a working reader reads within this time.
	patience = 5 * time.Second

	// page is PIPE_BUF: a pipe with any room takes as much at once.
	page = 4096

	// spare is the number of descriptors that Go's runtime needs for its first timer.
	// Without them it aborts the process.
	spare = 2
)

// Reply is the former standard output, for the answer.
type Reply struct {
	// Human is the former standard error if that is a terminal, else nil.
	Human io.Writer

	fd       int
	patience time.Duration
}

// ClaimOutput replaces descriptors 1 and 2 by /dev/null, also for children. Call it once, first
// in main.
//
// Also with an error it returns a Reply that can be written to; then at least one of the
// descriptors was not replaced.
//
// Closed descriptors are no error: Go's runtime opens /dev/null in their place before main
// (runtime/fds_unix.go), and the answer is lost.
func ClaimOutput() (*Reply, error) {
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

// checkSpare checks that more descriptors are available.
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

// openSink opens /dev/null, or a file in memory if a bare container has no /dev/null.
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

// errStuck is the error of a Write if the reader was too slow.
var errStuck = errors.New("no process reads the answer")

// Write writes p and returns after at most five seconds without progress, with
// errStuck if a pipe is still full by then.
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

// awaitRoom waits until a write does not block, also if it fails.
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
			return errStuck
		}
	}
}

// Close closes the descriptors of Claim.
func (r *Reply) Close() error {
	if r.fd == stdout {
		return nil
	}
	return unix.Close(r.fd)
}
