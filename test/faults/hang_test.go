package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// hang lets a volume hang, and then a driver, and measures the others.
func (w *world) hang() {
	w.other = &process{command: w.otherCommand}
	if err := w.other.start(); err != nil {
		w.report.wrong(err.Error())
		return
	}
	defer w.other.hold(unix.SIGTERM)
	other := w.newLiver(life{flexDriver: otherDriver})
	other.volume = &volume{name: "pv-other", handle: "vol-other", driver: otherDriver, accessMode: "ReadWriteOnce"}
	same := w.newLiver(lives()["plain"])
	err := w.mark(w.path("other"), other.volume)
	var before time.Duration
	if err == nil {
		before, err = same.measure()
	}
	if err == nil {
		var otherBefore time.Duration
		if otherBefore, err = other.measure(); err == nil {
			err = w.hangVolume(same, before)
		}
		if err == nil {
			err = w.hangDriver(other, otherBefore)
		}
	}
	if err == nil {
		// A mount that comes to its end late may make a directory of a pod
		// again; the kubelet looks for such ever again.
		err = eventually(func() error { return errors.Join(same.forget(), same.clean(), w.nothingLeft()) })
	}
	if err != nil {
		w.report.wrong(err.Error())
	}
}

const (
	rounds = 60
	// hung is how many calls wait for what hangs, more than any pool is large.
	hung = 200
)

// measure leads lives and returns the median of what one takes.
func (l *liver) measure() (time.Duration, error) {
	var took []time.Duration
	for range rounds {
		start := time.Now()
		for _, c := range []callout{{flex.CommandMount, "b"}, {flex.CommandUnmount, "b"}} {
			if err := l.lead(c); err != nil {
				return 0, err
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// hangVolume has every call for one volume hang, and leads others of the same
// driver.
func (w *world) hangVolume(l *liver, before time.Duration) error {
	victim := w.newLiver(lives()["plain"])
	victim.volume = w.volumes[len(w.volumes)-1]
	if victim.volume.driver == l.flexDriver {
		victim.volume = w.volumes[len(w.volumes)-2]
	}
	victim.flexDriver = victim.volume.driver
	rule := fault.Rule{Method: "*", Volume: victim.volume.handle, Hang: true, Stubborn: true}
	return w.compare(l, before, victim, "a volume of the same driver hangs", func() error { return fault.WriteFile(w.faultFile(), rule) }, func() error {
		return fault.WriteFile(w.faultFile())
	})
}

// hangDriver stops a driver, and leads lives with another. The sockets of the stopped one
// still accept connections.
func (w *world) hangDriver(l *liver, before time.Duration) error {
	victim := w.newLiver(lives()["plain"])
	return w.compare(l, before, victim, "another driver hangs", w.driver.stop, func() error {
		return w.driver.signal(unix.SIGCONT)
	})
}

// compare measures while many calls for the victim hang. That these do not end
// meanwhile shows that it hangs.
func (w *world) compare(l *liver, before time.Duration, victim *liver, what string, begin, end func() error) error {
	if err := begin(); err != nil {
		return err
	}
	var calls sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for n := range hung {
		c := callout{flex.CommandMount, fmt.Sprintf("hung-%d", n)}
		if err := victim.prepare(c); err != nil {
			cancel()
			return err
		}
		calls.Go(func() {
			status, err := w.exchange(ctx, wire.NewRequest(victim.flexDriver, victim.argv(c), patience))
			if err == nil && status.Status == flex.StatusSuccess && ctx.Err() == nil {
				w.report.wrong("what should hang does not: " + c.String())
			}
		})
	}
	after, err := l.measure()
	cancel()
	if ended := end(); err == nil {
		err = ended
	}
	calls.Wait()
	if err != nil {
		return fmt.Errorf("while %s: %w", what, err)
	}
	w.report.note("while %s, with %d calls that wait: mount and unmount take %v (median of %d), before %v: ratio %.2f", what, hung, after.Round(time.Microsecond), rounds, before.Round(time.Microsecond), float64(after)/float64(before))
	return eventually(victim.forget)
}

// forget does what the kubelet does for pods that are gone.
func (l *liver) forget() error {
	for n := range hung {
		pod := fmt.Sprintf("hung-%d", n)
		c := callout{flex.CommandUnmount, pod}
		if isMount(l.dir(c)) { // late, and found by the next kubelet
			if err := l.lead(c); err != nil {
				return err
			}
		}
		if err := l.cleanUp(pod); err != nil {
			return err
		}
	}
	return nil
}
