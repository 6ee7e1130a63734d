// Package filelock is how processes take turns: a lock on a file, which the
// kernel gives up with the process that holds it, however that ends.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process has the lock.
var ErrHeld = errors.New("another process has the lock")

// pause is the time between two tries.
const pause = 10 * time.Millisecond

// A Lock is held until it is closed, or the process ends.
type Lock struct{ f *os.File }

// Try takes the lock of a path, or returns [ErrHeld]. The file is made if it is
// not there, for its owner alone, and never removed: who opened it before it was
// removed, and who opens it afterwards, would not lock the same.
func Try(path string) (*Lock, error) {
	for range 100 {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, err
		}
		if same(f, path) {
			return &Lock{f}, nil
		}
		f.Close() // the file was removed or replaced: this lock excludes no process
	}
	return nil, fmt.Errorf("lock %s: it is replaced again and again", path)
}

// Wait takes the lock when it is free, or returns the cause of the end of ctx.
func Wait(ctx context.Context, path string) (*Lock, error) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		l, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// Close gives the lock up.
func (l *Lock) Close() error { return l.f.Close() }

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case err != nil:
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		default:
			return nil
		}
	}
}

// same reports whether a path still leads to what was opened there.
func same(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, now)
}
