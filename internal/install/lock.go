package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lock makes installers of one plugin directory take turns. It locks the
// directory itself: a lock file would be a file more to leave behind, and the
// kernel lets go of this lock when the process dies, whatever way it dies.
func lock(ctx context.Context, dir string, timeout time.Duration) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock plugin directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock plugin directory %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock plugin directory %s: another installer is at work there (lslocks shows which): %w", dir, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
