package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/daemon"
)

// bridgedFull is a node with a thousand mounted volumes, at rest, and a new
// daemon on it.
func (b *bench) bridgedFull() ([]row, error) {
	o := directory()
	for i := range b.scale.mounted {
		o.driverArgs = append(o.driverArgs, "--volume", fmt.Sprintf("m%d=1Mi", i))
	}
	w, err := b.newBridgeWorld("full", o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	none, err := w.idle(b.ctx, b.scale.rest)
	if err != nil {
		return nil, err
	}
	var volumes []volume
	for i := range b.scale.mounted {
		v, err := w.volume(fmt.Sprintf("m%d", i))
		if err != nil {
			return nil, err
		}
		if _, err := v.mount(); err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	idle, err := w.idle(b.ctx, b.scale.rest)
	if err != nil {
		return nil, err
	}
	resident, err := w.resident()
	if err != nil {
		return nil, err
	}
	restart, err := w.restart(b.ctx, volumes[0])
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if _, err := v.unmount(); err != nil {
			return nil, err
		}
	}
	return []row{
		{what: "1,000 mounted volumes: CPU of the idle daemon", figure: single(100 * idle), unit: " %", note: fmt.Sprintf("%.3f %% without volumes; %.1f MiB", 100*none, resident/(1<<20))},
		{what: "the same, after kill -9 of the daemon: start to answer", figure: single(1000 * restart.Seconds()), unit: " ms"},
	}, nil
}

// idle is the share of a processor that the daemon takes.
func (w *bridgeWorld) idle(ctx context.Context, rest time.Duration) (float64, error) {
	before, err := runtimeOf(w.daemon.Process.Pid)
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(rest):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	after, err := runtimeOf(w.daemon.Process.Pid)
	return (after - before).Seconds() / rest.Seconds(), err
}

// runtimeOf is how long the threads of a process have run (proc(5), schedstat).
func runtimeOf(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		var ran int64
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if _, scanned := fmt.Fscan(strings.NewReader(string(text)), &ran); err != nil || scanned != nil {
			return 0, errors.Join(err, scanned)
		}
		sum += time.Duration(ran)
	}
	return sum, nil
}

// restart is how long a daemon takes from its start, after the one before it was killed,
// until it has answered for a mounted volume.
func (w *bridgeWorld) restart(ctx context.Context, v volume) (time.Duration, error) {
	if err := w.daemon.End(unix.SIGKILL); err != nil {
		return 0, err
	}
	start := time.Now()
	var err error
	if w.daemon, err = w.launch(ctx, w.bridge.Socket(), w.path("flex2csi"), w.bridge.Args("--grace", "24h")...); err != nil {
		return 0, err
	}
	_, err = w.bridge.Call(ctx, bridgedFlexDriver, daemon.Patience, "mount", v.dir, v.options)
	return time.Since(start), err
}
