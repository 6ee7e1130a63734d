package bridge

import (
	"context"
	"time"
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

// rpc runs one RPC of the operation that has the turn, with a deadline.
func (v *volume) rpc(timeout time.Duration, f func(context.Context) error) error {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(v.ctx, timeout)
	defer cancel()
	return f(ctx)
}
