package csiclient

import (
	"context"
	"fmt"
	"sync"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// maxSetUps is how many RPCs that set volumes up one driver gets at a time:
// more than a node starts pods at a time, and few enough that a driver which
// hangs does not make all that wait for it start at once when it is back.
const maxSetUps = 64

// limiter lets so many through. Its zero value is ready.
type limiter struct {
	once  sync.Once
	slots chan struct{}
}

// do calls f when there is room. Only what sets up goes through here: nothing
// keeps tear-down waiting.
func (l *limiter) do(ctx context.Context, method string, f func() error) error {
	l.once.Do(func() { l.slots = make(chan struct{}, maxSetUps) })
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return &csivol.RPCError{Method: method, Code: flex.CodeUnavailable, Message: fmt.Sprintf("not sent: the driver has had %d calls to work on for so long", maxSetUps), NoAnswer: true}
	}
	defer func() { <-l.slots }()
	return f()
}
