package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// start is what a call costs that does nothing: init.
func (b *bench) start() ([]row, error) {
	pairs, err := b.compare(400,
		func() (cost, error) { return b.node.driver.call("init") },
		func() (cost, error) { return b.node.empty.call() })
	if err != nil {
		return nil, err
	}
	return []row{
		{what: "init, wall", figure: ratio(pairs, wall), unit: "x", goal: atMost(1.3), note: times(pairs, wall)},
		{what: "init, CPU", figure: ratio(pairs, cpu), unit: "x", goal: atMost(1.3), note: times(pairs, cpu)},
	}, nil
}

// mount is the cheapest call that does something: a directory bound into a pod.
func (b *bench) mount() ([]row, error) {
	v, err := b.node.bindVolume("pod-bind")
	if err != nil {
		return nil, err
	}
	var down []cost
	ups, err := b.compare(300, func() (cost, error) {
		up, err := v.mount()
		if err != nil {
			return up, err
		}
		c, err := v.unmount()
		down = append(down, c)
		return up, err
	}, func() (cost, error) { return b.node.empty.call() })
	if err != nil {
		return nil, err
	}
	downs := make([]pair, len(ups))
	for i, p := range ups {
		downs[i] = pair{got: down[i+1], reference: p.reference} // the first was left out
	}
	return []row{
		{what: "mount of a bind, wall", figure: ratio(ups, wall), unit: "x", goal: atMost(2), note: times(ups, wall)},
		{what: "mount of a bind, CPU", figure: ratio(ups, cpu), unit: "x", goal: atMost(2), note: times(ups, cpu)},
		{what: "its unmount, wall", figure: ratio(downs, wall), unit: "x", note: times(downs, wall)},
		{what: "its unmount, CPU", figure: ratio(downs, cpu), unit: "x", note: times(downs, cpu)},
	}, nil
}

// memory is the most that any of the common calls has resident.
func (b *bench) memory() ([]row, error) {
	v, err := b.node.bindVolume("pod-memory")
	if err != nil {
		return nil, err
	}
	calls := [][]string{{"init"}, {"mount", v.dir, v.options}, {"unmount", v.dir}}
	peaks, private := make([][]float64, len(calls)), make([][]float64, len(calls))
	for range 9 {
		for i, args := range calls {
			m, err := b.node.driver.peak(args...)
			if err != nil {
				return nil, err
			}
			peaks[i], private[i] = append(peaks[i], mib(m.peak)), append(private[i], mib(m.private))
		}
	}
	empty, err := b.node.empty.peak()
	if err != nil {
		return nil, err
	}
	worst := row{unit: " MiB", goal: atMost(3.5)}
	for i, args := range calls {
		if f := median(peaks[i]); f.value > worst.figure.value {
			worst.figure, worst.what = f, "peak memory, at "+args[0]
			worst.note = fmt.Sprintf("%.2f MiB private, the rest the file's; empty program %.2f MiB", median(private[i]).value, mib(empty.peak))
		}
	}
	return []row{worst}, nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (b *bench) size() ([]row, error) {
	driver, err := os.Stat(b.node.stripped)
	if err != nil {
		return nil, err
	}
	empty, err := os.Stat(b.node.empty.path)
	if err != nil {
		return nil, err
	}
	size := mib(driver.Size())
	return []row{{
		what: "stripped binary", figure: single(size), unit: " MiB", goal: atMost(3),
		note: fmt.Sprintf("%d bytes; empty program %.2f MiB", driver.Size(), mib(empty.Size())),
	}}, nil
}

const (
	inFlight = 16
)

// flight is the rate of calls when many pods start at the same time.
func (b *bench) flight() ([]row, error) {
	pairs, err := b.compare(24,
		func() (cost, error) { return b.atOnce(func() (cost, error) { return b.node.driver.call("init") }) },
		func() (cost, error) { return b.atOnce(func() (cost, error) { return b.node.empty.call() }) })
	if err != nil {
		return nil, err
	}
	rate := func(side func(pair) cost) float64 { return float64(b.scale.calls) / typical(pairs, side, wall) }
	return []row{{
		what: "rate with 16 calls in flight", figure: ratio(inverse(pairs), wall), unit: "x", goal: atLeast(0.6),
		note: fmt.Sprintf("%.0f/s : %.0f/s", rate(got), rate(reference)),
	}}, nil
}

// atOnce makes a batch of calls, so many at a time, and returns how long the
// batch took.
func (b *bench) atOnce(call measurement) (cost, error) {
	var group sync.WaitGroup
	errs := make(chan error, inFlight)
	start := time.Now()
	for range inFlight {
		group.Go(func() {
			for range b.scale.calls / inFlight {
				if _, err := call(); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	return cost{wall: time.Since(start)}, <-errs
}

// times says what a ratio is made of.
func times(pairs []pair, of func(cost) float64) string {
	return milliseconds(typical(pairs, got, of)) + " : " + milliseconds(typical(pairs, reference, of))
}

func milliseconds(seconds float64) string {
	if seconds < 0.0005 {
		return fmt.Sprintf("%.0f µs", seconds*1e6)
	}
	return fmt.Sprintf("%.2f ms", seconds*1e3)
}
