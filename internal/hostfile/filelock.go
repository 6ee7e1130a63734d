//go:build unix

package hostfile

// This file has locks on files between processes. The kernel releases a lock
// when its process ends, however it ends.

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

// TryLock takes the lock of a path, or returns [ErrHeld]. It creates the file for its owner
// alone. The file must not be removed: processes that opened it before and after that
// would lock different files.
func TryLock(path string) (*Lock, error) {
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

// WaitLock takes the lock when it is free, or returns the cause of the end of ctx.
func WaitLock(ctx context.Context, path string) (*Lock, error) {
	return wait(ctx, func() (*Lock, error) { return TryLock(path) })
}

// WaitDirLock is [Wait] for an existing directory: it locks the directory itself.
func WaitDirLock(ctx context.Context, dir string) (*Lock, error) {
	return wait(ctx, func() (*Lock, error) {
		f, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, err
		}
		return &Lock{f}, nil
	})
}

func wait(ctx context.Context, try func() (*Lock, error)) (*Lock, error) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for {
		l, err := try()
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

// Close releases the lock.
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

// same reports whether a path still is the file that was opened.
func same(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, now)
}
