package shared

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestShared: an answer that was on its way before may not know what its caller has
// done since; and two hundred callers are no two hundred questions.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Answer[int64]
		var clock, asked atomic.Int64
		ask := func(context.Context) (int64, error) {
			asked.Add(1)
			saw := clock.Load()
			time.Sleep(time.Second)
			return saw, nil
		}
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				written := clock.Add(1)
				if saw, err := s.Get(t.Context(), ask); err != nil || saw < written {
					t.Errorf("the answer has what was written until %d, %d was before it was asked for (%v)", saw, written, err)
				}
			})
		}
		all.Wait()
		if n := asked.Load(); n > 2 {
			t.Errorf("asked %d times", n)
		}
		if _, err := s.Get(t.Context(), func(context.Context) (int64, error) { return 0, errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("an error is %v", err)
		}
		synctest.Wait() // until that question is no more: a caller that came now would be answered by it
		// Who leaves does not take the answer away from others.
		early, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.Get(early, ask); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
		if _, err := s.Get(t.Context(), ask); err != nil {
			t.Errorf("who comes then: %v", err)
		}
	})
}
