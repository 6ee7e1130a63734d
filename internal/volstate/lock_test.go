package volstate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// TestLock: one at a time, whatever the one that has it does with its files.
func TestLock(t *testing.T) {
	first, dir := open(t)
	if err := first.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Put(record("a")); err != nil {
		t.Fatal(err)
	}
	if _, broken, err := first.Load(); err != nil || len(broken) > 0 {
		t.Fatal(broken, err)
	}
	second, err := volstate.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := second.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a second one: %v", err)
	}
	taken := make(chan error, 1)
	go func() { taken <- second.Lock(t.Context()) }()
	if err := first.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-taken; err != nil {
		t.Errorf("the next one: %v", err)
	}
	if records, broken, err := volstate.Peek(dir); err != nil || len(broken) > 0 || len(records) != 1 {
		t.Errorf("there are %d records, %v, %v", len(records), broken, err)
	}
	if err := second.Unlock(); err != nil {
		t.Error(err)
	}
	if err := second.Unlock(); err != nil {
		t.Errorf("once more: %v", err)
	}
}
