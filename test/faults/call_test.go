package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// callKiller says how many of the callouts made now are killed: so many of a
// hundred.
type callKiller struct{ percent atomic.Int32 }

// callTimeout is how long a callout may take, as far as the caller is
// concerned.
const callTimeout = 4 * time.Second

// call makes a callout as flexdriver does, and kills it when ctx ends or
// faults want it. Only a Success is one.
func (w *world) call(ctx context.Context, random *rand.Rand, driver string, argv ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if random.Int32N(100) < w.calls.percent.Load() {
		defer time.AfterFunc(upTo(random, 20*time.Millisecond), cancel).Stop()
	}
	timeout := callTimeout
	if random.IntN(40) == 0 {
		timeout = 10*time.Millisecond + upTo(random, 200*time.Millisecond)
	}
	w.report.count(countCalls)
	status, err := w.exchange(ctx, wire.NewRequest(driver, argv, timeout))
	switch {
	case err == nil && status.Status == flex.StatusSuccess:
		return nil
	case err == nil && status.Status != flex.StatusFailure:
		w.report.wrong(fmt.Sprintf("%q was answered with %q: %s", argv, status.Status, status.Message))
	case err == nil:
		err = errors.New(status.Message)
	}
	w.report.count(countFailed)
	return err
}

// exchange is what internal/wire does for flexdriver, but that it can be
// killed: the daemon sees its end of the connection close.
func (w *world) exchange(ctx context.Context, r *wire.Request) (flex.DriverStatus, error) {
	line, err := wire.Encode(r)
	if err != nil {
		return flex.DriverStatus{}, err
	}
	conn, err := w.dial(ctx)
	if err != nil {
		return flex.DriverStatus{}, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(r.Timeout() + 2*time.Second)); err != nil {
		return flex.DriverStatus{}, err
	}
	if _, err := conn.Write(line); err != nil {
		return flex.DriverStatus{}, err
	}
	answer, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return flex.DriverStatus{}, err
	}
	response, err := wire.DecodeResponse(answer, r.ID)
	if err != nil {
		w.report.wrong(fmt.Sprintf("an answer that is none: %v: %q", err, answer))
		return flex.DriverStatus{}, err
	}
	return response.Status, nil
}

// dial waits for a daemon as long as flexdriver does.
func (w *world) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	for giveUp := time.Now().Add(wire.DialBudget); ; {
		conn, err := d.DialContext(ctx, "unix", w.socket())
		if err == nil || ctx.Err() != nil || time.Now().After(giveUp) {
			return conn, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
