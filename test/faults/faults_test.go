package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/test/csidriver/fault"
)

// A misfortune is a kind of fault. It ends by itself, with all processes
// running again.
type misfortune struct {
	name   string
	weight int
	strike func(w *world, r *rand.Rand) error
}

func misfortunes() []misfortune {
	return []misfortune{
		{"the driver follows rules", 12, (*world).strikeRules},
		{"the driver is killed", 3, (*world).strikeDriver},
		{"the daemon is killed", 4, (*world).killDaemon},
		{"the daemon is away for long", 1, (*world).holdDaemon},
		{"the daemon is told to end", 2, (*world).endDaemon},
		{"callouts are killed", 4, (*world).strikeCallouts},
		{"the disk of the state is full", 2, (*world).strikeDisk},
		{"strange files lie in the state directory", 1, (*world).strikeFiles},
		{"a record is spoilt", 1, (*world).strikeRecord},
		{"the clock has jumped", 1, (*world).strikeClock},
		{"the kubelet is restarted", 3, (*world).strikeKubelet},
		{"the node is rebooted", 1, (*world).strikeNode},
	}
}

// makeFaults lets one fault follow the other until ctx ends, and then puts
// things right.
func (w *world) makeFaults(ctx context.Context, round int) {
	random := w.random(fmt.Sprintf("faults %d", round))
	all := misfortunes()
	total := 0
	for _, m := range all {
		total += m.weight
	}
	for ctx.Err() == nil {
		n := random.IntN(total)
		for _, m := range all {
			if n -= m.weight; n < 0 {
				w.history.add(m.name)
				w.report.count(m.name)
				if err := m.strike(w, random); err != nil {
					w.report.wrong(fmt.Sprintf("the world cannot do that %s: %v", m.name, err))
					return
				}
				break
			}
		}
		w.wait(ctx, upTo(random, 100*time.Millisecond))
	}
	if err := fault.WriteFile(w.faultFile()); err != nil {
		w.report.wrong("end the faults: " + err.Error())
	}
}

func (w *world) wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// strikeRules has the driver fail for a while; sometimes longer than that,
// until the next rules.
func (w *world) strikeRules(r *rand.Rand) error {
	var rules []fault.Rule
	for range 1 + r.IntN(4) {
		rules = append(rules, w.rule(r))
	}
	if err := fault.WriteFile(w.faultFile(), rules...); err != nil {
		return err
	}
	time.Sleep(50*time.Millisecond + upTo(r, 350*time.Millisecond))
	if r.IntN(4) == 0 {
		return nil
	}
	return fault.WriteFile(w.faultFile())
}

// rule makes up one way to fail.
func (w *world) rule(r *rand.Rand) fault.Rule {
	methods := []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerPublishVolume", "ControllerUnpublishVolume", "Node*", "*"}
	answers := []codes.Code{
		codes.Aborted, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Unknown,
		codes.Internal, codes.Internal, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists,
	}
	rule := fault.Rule{Method: methods[r.IntN(len(methods))], Skip: r.IntN(3), Times: 1 + r.IntN(6)}
	if r.IntN(3) == 0 {
		rule.Volume = w.volumes[r.IntN(len(w.volumes))].handle
	}
	if !strings.HasPrefix(rule.Method, "Node") {
		// A node can see that a driver says so wrongly, but not for an attachment.
		answers = slices.DeleteFunc(answers, func(c codes.Code) bool { return c == codes.NotFound })
	}
	switch n := r.IntN(20); {
	case n < 8:
		rule.Code = answers[r.IntN(len(answers))]
	case n < 14: // done, but answered with an error
		rule.Code, rule.After = answers[r.IntN(len(answers))], true
		if !strings.HasPrefix(rule.Method, "Node") && rule.Code == codes.FailedPrecondition {
			rule.Code = codes.Internal // that another node has it would be a lie, too
		}
	case n < 17:
		rule.Delay, rule.After = fault.Duration(upTo(r, 100*time.Millisecond)), r.IntN(2) == 0
	case n < 18:
		rule.Hang, rule.Stubborn, rule.After, rule.Times = true, r.IntN(2) == 0, r.IntN(2) == 0, 1
	default:
		rule.Kill, rule.After, rule.Times = true, r.IntN(2) == 0, 1
	}
	return rule
}

// interrupt ends a process, does something and starts it again.
func interrupt(p *process, signal syscall.Signal, meanwhile func() error) error {
	p.hold(signal)
	err := meanwhile()
	if start := p.release(); err == nil {
		err = start
	}
	return err
}

// sometimes is a pause in every second case.
func sometimes(r *rand.Rand, most time.Duration) func() error {
	d := upTo(r, most)
	if r.IntN(2) == 0 {
		d = 0
	}
	return func() error { time.Sleep(d); return nil }
}

func (w *world) strikeDriver(r *rand.Rand) error {
	return interrupt(w.driver, unix.SIGKILL, sometimes(r, 300*time.Millisecond))
}

func (w *world) killDaemon(r *rand.Rand) error {
	return interrupt(w.daemon, unix.SIGKILL, sometimes(r, 300*time.Millisecond))
}

// holdDaemon is longer than flexdriver waits: it unmounts without.
func (w *world) holdDaemon(r *rand.Rand) error {
	return interrupt(w.daemon, unix.SIGKILL, func() error {
		time.Sleep(wire.DialBudget + upTo(r, time.Second))
		return nil
	})
}

func (w *world) endDaemon(r *rand.Rand) error {
	return interrupt(w.daemon, unix.SIGTERM, sometimes(r, 100*time.Millisecond))
}

func (w *world) strikeCallouts(r *rand.Rand) error {
	w.calls.percent.Store(20 + r.Int32N(60))
	defer w.calls.percent.Store(0)
	time.Sleep(100*time.Millisecond + upTo(r, 200*time.Millisecond))
	return nil
}

// kubeletStart is how long a kubelet takes at least until it looks at volumes: 310 to 500 ms after its
// first line in the log (22 starts of v1.37.1, Get volume from pod directory). By then the daemon has
// undone the mount of a caller that ended with the kubelet before (unbind-unseen).
const kubeletStart = 300 * time.Millisecond

// strikeKubelet restarts it: sometimes there is none for a while.
func (w *world) strikeKubelet(r *rand.Rand) error {
	w.stopKubelet()
	time.Sleep(kubeletStart)
	_ = sometimes(r, 100*time.Millisecond)()
	w.startKubelet()
	return nil
}

// strikeNode reboots: all processes end at once, and no mount is left.
func (w *world) strikeNode(*rand.Rand) error {
	w.daemon.hold(unix.SIGKILL)
	w.stopKubelet()
	w.driver.hold(unix.SIGKILL)
	if err := w.unmountAll(); err != nil {
		return err
	}
	w.history.add(rebooted)
	if err := w.boot(); err != nil {
		return err
	}
	if err := w.driver.release(); err != nil {
		return err
	}
	if err := w.daemon.release(); err != nil {
		return err
	}
	w.startKubelet()
	return nil
}
