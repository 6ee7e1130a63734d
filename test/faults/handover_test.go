package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

const countHandOvers = "hand-overs"

// A surge has a daemon with a network of its own, as one in Kubernetes.
type surge struct {
	*process
	w *world
}

// newSurge starts one. It never ends by itself.
func (w *world) newSurge(binary string) (*surge, error) {
	p := &surge{w: w}
	p.process = &process{
		command: func() *exec.Cmd {
			cmd := w.daemonCommand()
			cmd.Path = binary
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
			return cmd
		},
		ended: func(state *os.ProcessState, asked bool) {
			// One that ends in good order leaves nothing under way at the driver
			// that the next one would not know of.
			status, ok := state.Sys().(syscall.WaitStatus)
			killed := ok && status.Signal() == unix.SIGKILL // by us
			if killed {
				w.history.add(daemonGone)
			}
			if !killed && (!asked || state.ExitCode() > 0) {
				w.report.wrong("a daemon ended by itself: " + state.String() + "\n" + tail(w.path("daemon.log"), 20))
			}
		},
	}
	return p, p.start()
}

// ask is flex2csi ready in the pod.
func (p *surge) ask() (*bridgestatus.Readiness, error) {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	if cmd == nil {
		return nil, os.ErrProcessDone
	}
	type result struct {
		r   bridgestatus.Readiness
		err error
	}
	answer := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var r result
		defer func() { answer <- r }()
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
		if r.err = err; err != nil {
			return
		}
		defer ns.Close()
		if r.err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); r.err != nil {
			return
		}
		document, err := wire.Ask(context.Background(), wire.OwnSocket(p.w.socket()), wire.KindReady, 5*time.Second)
		if r.err = err; err == nil {
			r.err = json.Unmarshal(document, &r.r)
		}
	}()
	r := <-answer
	return &r.r, r.err
}

// is waits for a state, and wants to hear that the pod is ready and alive.
func (p *surge) is(want bridgestatus.State) error {
	return eventually(func() error {
		r, err := p.ask()
		switch {
		case err != nil:
			return err
		case r.State != want:
			return fmt.Errorf("it is %s (%s), not %s", r.State, r.Message, want)
		case !r.Ready || !r.Live:
			return fmt.Errorf("it is %s, and ready %t, live %t: %s", r.State, r.Ready, r.Live, r.Message)
		}
		return nil
	})
}

// handOver has many daemons take over from each other while calls are made all
// the time. None may fail.
func (w *world) handOver() {
	w.daemon.hold(unix.SIGTERM)
	// Calls of one driver are under way whenever one daemon ends; those of the
	// other one take longer than the daemon may take to end, so they are parked.
	direct := w.newLiver(life{flexDriver: directDriver}).volume
	err := fault.WriteFile(w.faultFile(),
		fault.Rule{Method: "NodeUnpublishVolume", Volume: direct.handle, Delay: fault.Duration(drain + 200*time.Millisecond)},
		fault.Rule{Method: "NodePublishVolume", Delay: fault.Duration(150 * time.Millisecond)})
	var serving *surge
	if err == nil {
		serving, err = w.newSurge(w.Daemon)
	}
	if err == nil {
		err = serving.is(bridgestatus.Serving)
	}
	if err != nil {
		w.report.wrong(err.Error())
		return
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	var failed atomic.Int64
	var done [4]atomic.Int64 // calls of each
	for n := range done {
		load.Go(func() { w.load(n, stop, &done[n], &failed) })
	}
	for round := 0; round < 24 && err == nil; round++ {
		time.Sleep(200 * time.Millisecond) // some calls with each
		if round%3 == 2 {
			// A call is made five times at most (internal/wire, tries), and those that
			// take long need a daemon that lives as long, once in so many. In three
			// rounds four daemons may end: one that was killed may serve once more.
			err = eventually(allOnce(done[:]))
		}
		if err == nil {
			serving, err = w.handOverOnce(round, serving)
		}
	}
	close(stop)
	load.Wait()
	if err == nil {
		err = w.newLiver(lives()["plain"]).gone()
	}
	if serving != nil {
		serving.hold(unix.SIGTERM)
	}
	if err != nil {
		w.report.wrong(err.Error())
	}
	w.inOrder()
	w.report.note("%d calls during %d hand-overs: %d failed, the longest took %v", w.report.counted(countCalls), w.report.counted(countHandOvers), failed.Load(), w.report.longestCall().Round(time.Millisecond))
}

// allOnce returns a question: has each of these counters moved since?
func allOnce(counters []atomic.Int64) func() error {
	before := make([]int64, len(counters))
	for i := range counters {
		before[i] = counters[i].Load()
	}
	return func() error {
		for i := range counters {
			if counters[i].Load() == before[i] {
				return fmt.Errorf("load %d still makes the same call", i)
			}
		}
		return nil
	}
}

// handOverOnce lets one daemon follow the other, in one of the ways that there
// are, and returns the one that serves then.
func (w *world) handOverOnce(round int, serving *surge) (*surge, error) {
	binary := []string{w.NewDaemon, w.Daemon}[round%2] // upgrade and rollback
	next, err := w.newSurge(binary)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(next.is(bridgestatus.StandingBy), serving.is(bridgestatus.Serving)); err != nil {
		return nil, err
	}
	signal := unix.SIGTERM
	switch round % 6 {
	case 1: // the one that serves dies, and its pod starts it again: it stands by
		if err := serving.signal(unix.SIGKILL); err != nil {
			return nil, err
		}
	case 2: // the one that stands by dies, and stands by again
		next.hold(unix.SIGKILL)
		if err := errors.Join(next.release(), next.is(bridgestatus.StandingBy)); err != nil {
			return nil, err
		}
	case 3: // it is told to end instead: the upgrade is taken back
		next.hold(unix.SIGTERM)
		return serving, serving.is(bridgestatus.Serving)
	case 4: // two stand by
		return w.oneOfTwo(serving, next)
	case 5:
		signal = unix.SIGKILL
	}
	serving.hold(signal)
	w.report.count(countHandOvers)
	return next, next.is(bridgestatus.Serving)
}

// oneOfTwo ends the one that serves while two stand by, and then the one that
// goes on standing by.
func (w *world) oneOfTwo(serving, next *surge) (*surge, error) {
	other, err := w.newSurge(w.Daemon)
	if err == nil {
		err = other.is(bridgestatus.StandingBy)
	}
	if err != nil {
		return nil, err
	}
	serving.hold(unix.SIGTERM)
	w.report.count(countHandOvers)
	err = eventually(func() error {
		for range 2 {
			if r, err := next.ask(); err == nil && r.State == bridgestatus.Serving {
				return nil
			}
			next, other = other, next
		}
		return errors.New("neither of two that stood by serves")
	})
	if err == nil {
		err = other.is(bridgestatus.StandingBy)
	}
	other.hold(unix.SIGTERM)
	return next, err
}
