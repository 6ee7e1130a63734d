package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// slowMounts unmounts nothing before all are asked for.
type slowMounts struct {
	bridge.Mounts
	waiting chan struct{} // has room for all but one
	all     chan struct{}
}

func (m *slowMounts) Mounted(string) (bool, error) { return false, nil }

func (m *slowMounts) Unmount(ctx context.Context, _ string) error {
	select {
	case m.waiting <- struct{}{}:
	default:
		close(m.all)
	}
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestPendingUnmounts: one that hangs does not delay the others, and with them all
// calls.
func TestPendingUnmounts(t *testing.T) {
	const many = 30
	dir := t.TempDir()
	for i := range many {
		unmount := statedir.PendingUnmount{Driver: "a/b", Command: flex.CommandUnmount, Dir: fmt.Sprintf("/somewhere/%d", i)}
		if err := statedir.WritePendingUnmount(dir, unmount); err != nil {
			t.Fatal(err)
		}
	}
	mounts := &slowMounts{waiting: make(chan struct{}, many-1), all: make(chan struct{})}
	pending := statedir.PendingUnmounts(dir)
	d := &Daemon{Options: Options{
		Bridge:          &bridge.Bridge{Context: t.Context(), Mounts: mounts, PendingUnmounts: pending},
		PendingUnmounts: pending,
		Log:             slog.New(slog.DiscardHandler),
	}}
	d.completeUnmounts(t.Context())
	if left, broken := statedir.ListPendingUnmounts(dir); len(left)+len(broken) > 0 {
		t.Errorf("%d pending unmounts are left: %v", len(left), broken)
	}
}
