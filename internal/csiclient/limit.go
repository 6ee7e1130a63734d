package csiclient

import (
	"context"
	"fmt"
	"sync"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// maxSetUps bounds the concurrent RPCs that set up volumes, for each driver: more than a
// node starts pods at a time, and few enough that not all waiting calls start at once
// when a driver that hung is back.
const maxSetUps = 64

// limiter bounds concurrent calls. Its zero value is ready.
type limiter struct {
	once  sync.Once
	slots chan struct{}
}

// whenFree calls f when a slot is free. Only RPCs that set up a volume use it; tear-down calls
// onNode directly, and never waits.
func (l *limiter) whenFree(ctx context.Context, method string, f func() error) error {
	l.once.Do(func() { l.slots = make(chan struct{}, maxSetUps) })
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return &csivol.RPCError{Method: method, Code: flex.CodeUnavailable, Message: fmt.Sprintf("not sent: the driver has had %d calls to work on for so long", maxSetUps), NoAnswer: true}
	}
	defer func() { <-l.slots }()
	return f()
}
