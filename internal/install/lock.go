package install

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flex2csi/flex2csi/internal/filelock"
)

// lock serializes the installers of a plugin directory. It locks the directory itself:
// a lock file would be one more file to leave behind.
func lock(ctx context.Context, dir string, timeout time.Duration) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("another installer is at work there (lslocks shows which)"))
	defer cancel()
	l, err := filelock.WaitDir(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("lock plugin directory %s: %w", dir, err)
	}
	return func() { l.Close() }, nil
}
