package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/wire"
)

// Listen makes the socket. Its directory is made if need be, for root alone;
// one that others could write to is refused. A socket that is left over from
// a process that is gone is replaced: a lock next to it tells, not a dial. If
// another process listens there, [ErrTaken] is returned.
func Listen(path string) (net.Listener, error) {
	return listenWith(path, hostfile.TryLock)
}

// Await is [Listen], but waits for a process that listens there until it stops,
// or until ctx ends.
func Await(ctx context.Context, path string) (net.Listener, error) {
	return listenWith(path, func(lock string) (*hostfile.Lock, error) { return hostfile.WaitLock(ctx, lock) })
}

// ErrTaken says that another process listens at the socket.
var ErrTaken = errors.New("another flex2csi is running with this socket")

func listenWith(path string, take func(lock string) (*hostfile.Lock, error)) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := hostfile.CheckTrustedDir(dir, true); err != nil {
		return fail(err)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != fs.ModeSocket {
		return fail(errors.New("there is something that is no socket; remove it"))
	}
	lock, err := take(path + ".lock")
	if errors.Is(err, hostfile.ErrHeld) {
		err = ErrTaken
	}
	if err != nil {
		return fail(err)
	}
	// Made under another name and renamed: no moment without a socket, and
	// none in which others could open it.
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	_ = os.Remove(temporary)
	l, err := listen(temporary)
	if err != nil {
		lock.Close()
		return fail(err)
	}
	if err := errors.Join(os.Chmod(temporary, 0o600), os.Rename(temporary, path)); err != nil {
		l.Close()
		lock.Close()
		return fail(err)
	}
	return &locked{Listener: l, lock: lock}, nil
}

func listen(path string) (net.Listener, error) {
	address, release, err := wire.Address(path)
	if err != nil {
		return nil, err
	}
	defer release()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", address)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	return l, nil
}

// ListenOwn listens at the socket that is this process's own, where it answers
// for itself while another one has the socket ([wire.OwnSocket]). The address is
// one of this network namespace, and of no file: it is gone with the process.
func ListenOwn(socket string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", wire.OwnSocket(socket))
	if err != nil {
		return nil, fmt.Errorf("listen for questions to this process: %w", err)
	}
	return l, nil
}

// locked gives up the lock with the listener. The socket stays: a driver that
// dials while the daemon is restarted waits for the next one.
type locked struct {
	net.Listener
	lock *hostfile.Lock
}

func (l *locked) Close() error { return errors.Join(l.Listener.Close(), l.lock.Close()) }
