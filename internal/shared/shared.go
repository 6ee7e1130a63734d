// Package shared has callers that ask the same at the same time share an answer.
package shared

import (
	"context"
	"sync"
	"time"
)

// An Answer is to a question that many callers ask. A caller that comes while it is being
// answered gets the next answer: that one may be older than what the caller has done.
type Answer[T any] struct {
	mu    sync.Mutex
	next  *answering[T]
	asked bool
}

type answering[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// wait bounds one answer, for all callers that wait for it.
const wait = time.Minute

// Get returns an answer that was begun after the call of Get. Only one is under way at any
// time.
func (a *Answer[T]) Get(ctx context.Context, ask func(context.Context) (T, error)) (value T, err error) {
	a.mu.Lock()
	if a.next == nil {
		a.next = &answering[T]{done: make(chan struct{})}
	}
	mine := a.next
	if !a.asked {
		a.asked = true
		go a.run(context.WithoutCancel(ctx), ask)
	}
	a.mu.Unlock()
	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

// run answers until no caller waits.
func (a *Answer[T]) run(ctx context.Context, ask func(context.Context) (T, error)) {
	for {
		a.mu.Lock()
		now := a.next
		a.next, a.asked = nil, now != nil
		a.mu.Unlock()
		if now == nil {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, wait)
		now.value, now.err = ask(bounded)
		cancel()
		close(now.done)
	}
}
