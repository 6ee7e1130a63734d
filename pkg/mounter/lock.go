package mounter

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockName takes a lock by name: one byte, at the hash of the name, of a file that
// all processes share. So any number of names need one empty file,
// and none of them is left over. Two names that share a byte (one in 2^62)
// wait for each other without need, and nothing worse. Close unlocks.
func LockName(ctx context.Context, file, name string) (*Lock, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(h.Sum64() >> 2), Len: 1}
	if err := poll(ctx, func() error { return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock) }); err != nil {
		f.Close()
		return nil, err
	}
	lock.Type = unix.F_UNLCK
	return &Lock{f, lock}, nil
}

// A Lock is what [LockName] took.
type Lock struct {
	file   *os.File
	unlock unix.Flock_t
}

// Close gives the lock back, at once: closing the file would not, while a
// program that another thread is starting has it open, from fork to exec.
func (l *Lock) Close() error {
	err := unix.FcntlFlock(l.file.Fd(), unix.F_OFD_SETLK, &l.unlock)
	return errors.Join(err, l.file.Close())
}

// poll tries until the lock is free. Waiting in the kernel could not be ended
// by a context.
func poll(ctx context.Context, try func() error) error {
	wait := time.Millisecond
	for {
		err := try()
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EACCES) {
			return err
		}
		select {
		case <-ctx.Done():
			return because(ErrBusy, "another call is at work on it (%v)", context.Cause(ctx))
		case <-time.After(wait):
			wait = min(2*wait, 50*time.Millisecond)
		}
	}
}
