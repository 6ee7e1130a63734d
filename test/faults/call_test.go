package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// errLeft is of a callout that ended before the operation that it had asked for: it was killed, or
// its time was over.
var errLeft = errors.New("the callout ended before its operation")

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
	status, err := w.answer(ctx, random, driver, argv, timeout)
	switch {
	case err == nil && status.Status == flex.StatusSuccess:
		return nil
	case err == nil && status.Status != flex.StatusFailure:
		w.report.wrong(fmt.Sprintf("%q was answered with %q: %s", argv, status.Status, status.Message))
	case err == nil:
		err = errors.New(status.Message)
	}
	w.report.count(countFailed)
	if ctx.Err() != nil || strings.Contains(status.Message, "still in progress") {
		err = fmt.Errorf("%w: %w", errLeft, err)
	}
	return err
}

func (w *world) answer(ctx context.Context, random *rand.Rand, driver string, argv []string, timeout time.Duration) (flex.DriverStatus, error) {
	if random.Int32N(100) < w.Exec {
		return w.execute(ctx, driver, argv, timeout)
	}
	return w.exchange(ctx, wire.NewRequest(driver, argv, timeout))
}

// execute makes a callout as the kubelet does.
func (w *world) execute(ctx context.Context, driver string, argv []string, timeout time.Duration) (flex.DriverStatus, error) {
	var status flex.DriverStatus
	out, err := exec.CommandContext(ctx, w.plugin(driver), append([]string{"--timeout", timeout.String()}, argv...)...).CombinedOutput()
	if ctx.Err() != nil {
		return status, ctx.Err()
	}
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	if err != nil {
		w.report.wrong(fmt.Sprintf("flexdriver %q: %v: %q", argv, err, out))
	}
	return status, err
}

// plugin is where the kubelet finds a driver.
func (w *world) plugin(driver string) string {
	return filepath.Join(w.path("exec"), escaped(driver), filepath.Base(driver))
}

// install lays out the drivers' directories.
func (w *world) install() error {
	for _, driver := range []string{plainDriver, deviceDriver, directDriver} {
		path := w.plugin(driver)
		config := fmt.Sprintf(`{"apiVersion":"flex2csi.io/v1alpha1","kind":"FlexDriverConfiguration","backend":"csi","driver":%q,"socket":%q,"stateDir":%q}`, driver, w.socket(), w.stateDir())
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(w.Flexdriver, path), os.WriteFile(filepath.Join(filepath.Dir(path), ".flexdriver.json"), []byte(config), 0o644))
		if err != nil {
			return err
		}
	}
	return nil
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

// listens reports that a daemon accepts calls.
func (w *world) listens() error {
	conn, err := net.Dial("unix", w.socket())
	if err != nil {
		return err
	}
	return conn.Close()
}
