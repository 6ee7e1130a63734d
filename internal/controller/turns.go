package controller

import (
	"context"
	"sync"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A turn is a volume on a node.
type turn struct{ volume, node string }

// turns serializes the calls for a volume on a node: a detach that overtook the request
// of an attach would find nothing, and leave the attachment behind.
type turns struct {
	mu  sync.Mutex
	all map[turn]chan struct{} // closed when the turn is over
}

// wait waits for the caller's turn, and returns the function that ends it.
func (t *turns) wait(ctx context.Context, which turn) (end func(), err error) {
	for {
		t.mu.Lock()
		taken, ok := t.all[which]
		if !ok {
			if t.all == nil {
				t.all = map[turn]chan struct{}{}
			}
			mine := make(chan struct{})
			t.all[which] = mine
			t.mu.Unlock()
			return func() { t.end(which, mine) }, nil
		}
		t.mu.Unlock()
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, flex.Errorf(flex.CodeAborted, "volume %s on node %s is still being attached or detached: %w", which.volume, which.node, context.Cause(ctx))
		}
	}
}

func (t *turns) end(which turn, mine chan struct{}) {
	t.mu.Lock()
	delete(t.all, which)
	t.mu.Unlock()
	close(mine)
}
