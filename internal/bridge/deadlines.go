package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// waitUntil notes how long a caller waits.
func (p *inProgress) waitUntil(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	for old := p.until.Load(); ok && deadline.UnixNano() > old; old = p.until.Load() {
		if p.until.CompareAndSwap(old, deadline.UnixNano()) {
			return
		}
	}
}

// patience is how long a call may wait for what goes on without it: its caller
// is to hear what it waits for, rather than leave.
func (v *volume) patience(timeout time.Duration) time.Duration {
	const toAnswer, least = 3 * time.Second, time.Second
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	until := v.current.until.Load()
	if until == 0 {
		return timeout
	}
	return min(timeout, max(least, time.Until(time.Unix(0, until))-toAnswer))
}

// defaultTimeout is that of RPCs for which the driver has none.
const defaultTimeout = 2 * time.Minute

// withDeadline runs one request of the operation, to a CSI driver or the API server.
func (v *volume) withDeadline(timeout time.Duration, f func(context.Context) error) error {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(v.ctx, timeout)
	defer cancel()
	err := f(ctx)
	for wait := 50 * time.Millisecond; v.inherited && aborted(err) && wait < inheritedWait; wait *= 2 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		err = f(ctx)
	}
	return err
}

// inheritedWait bounds how long a driver is asked again that is still at the call of
// an earlier process, which ended a moment ago: it says ABORTED, until it has seen
// that no caller waits for the answer (CSI specification, "Secrets and Errors":
// operation pending for volume).
const inheritedWait = 2 * time.Second

func aborted(err error) bool {
	e, ok := errors.AsType[*csivol.RPCError](err)
	return ok && e.Code == flex.CodeAborted
}
