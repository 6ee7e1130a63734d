package faults

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// A sequel is what happens after the daemon was killed and started again.
type sequel int

const (
	// again: the same call comes.
	again sequel = iota
	// forgotten: Kubernetes took the call for failed, and its pod was deleted:
	// what was to be set up is taken down, as far as it looks set up.
	forgotten
	// reversed: a call that takes something down is not repeated, since a new
	// pod wants what it was about.
	reversed
	// spoilt: the disk has spoilt the record, too, but not the version before.
	// Then the same call comes.
	spoilt
)

func (s sequel) String() string {
	return [...]string{"again", "forgotten", "reversed", "again with a spoilt record"}[s]
}

// A shot kills the daemon when it has made its nth system call that changes
// the world, from when it was armed.
type shot struct {
	armed atomic.Bool
	left  int // 0: never
	steps []string
	hit   string
}

// After implements trace.Victim.
func (s *shot) After(step trace.Step) trace.Target {
	// What it logs changes nothing.
	if !s.armed.Load() || step.Class != trace.Changing || strings.Contains(step.What, "memfd:") {
		return trace.None
	}
	s.steps = append(s.steps, step.What)
	if s.left--; s.left == 0 {
		s.hit = step.What
		return trace.Leader
	}
	return trace.None
}

// kill leads a life again and again, with the daemon killed at another point
// each time.
func (w *world) kill(name string) {
	l := w.newLiver(lives()[name])
	for i, victim := range l.callouts {
		if err := l.killAll(i); err != nil {
			w.report.wrong(fmt.Sprintf("%s %s: %v", name, victim, err))
		}
		if w.report.broken() {
			return
		}
	}
}

// killAll goes through the points of the call at index i.
func (l *liver) killAll(i int) error {
	baseline := &shot{}
	if err := l.one(i, baseline, again); err != nil {
		return fmt.Errorf("undisturbed: %w", err)
	}
	for n, what := range baseline.steps {
		if !l.All && !matters(what) {
			continue
		}
		for _, s := range l.sequels(i, n) {
			s0 := &shot{left: n + 1}
			if err := l.one(i, s0, s); err != nil {
				return fmt.Errorf("killed after step %d (%s), then %v: %w", n+1, s0.hit, s, err)
			}
			l.report.count("daemon killed in " + string(l.callouts[i].command))
		}
	}
	return nil
}

// matters: what is written down, said to others, and mounted.
func matters(what string) bool {
	verb, _, _ := strings.Cut(what, " ")
	return slices.Contains([]string{"rename", "unlink", "link", "move_mount", "umount", "send", "connect", "mkdir", "rmdir"}, verb) ||
		strings.Contains(what, "socket:")
}

// sequels are those of the nth point; in the short run they take turns.
func (l *liver) sequels(i, n int) []sequel {
	other := forgotten
	if l.callouts[i].undoes() {
		other = reversed
	}
	if l.All {
		return []sequel{again, other, spoilt}
	}
	return []sequel{[]sequel{again, other, again, spoilt, other}[n%5]}
}

// one leads one life.
func (l *liver) one(i int, s *shot, then sequel) error {
	l.mounted = map[string]bool{}
	l.size += 64 << 10 // thousands of lives fit on the driver's disk
	victim := l.callouts[i]
	for _, c := range l.callouts[:i] {
		if err := l.lead(c); err != nil {
			return fmt.Errorf("before: %w", err)
		}
	}
	err := l.shoot(victim, s, then)
	if s.left > 0 || s.hit == "" { // it made fewer calls this time
		if err == nil {
			err = l.made(victim)
		}
		then = again
	} else {
		err = l.follow(i, then)
	}
	if err != nil {
		return err
	}
	for _, c := range l.rest(i, then) {
		if err := l.lead(c); err != nil {
			return fmt.Errorf("after: %w", err)
		}
	}
	if err := l.gone(); err != nil {
		return fmt.Errorf("after all: %w", err)
	}
	l.inOrder()
	if l.report.broken() {
		return errors.New("see above")
	}
	return nil
}

// shoot makes a call to a daemon that is traced, and starts another one.
func (l *liver) shoot(c callout, s *shot, then sequel) error {
	if err := l.prepare(c); err != nil {
		return err
	}
	l.daemon.hold(unix.SIGTERM)
	started := make(chan *os.Process, 1)
	command := l.daemonCommand()
	tracer := &trace.Tracer{Name: "flex2csi", Sockets: true, Victim: s, OnStart: func(p *os.Process) { started <- p }}
	ended := make(chan error, 1)
	go func() {
		_, err := tracer.Run(command.Path, command.Args, os.Environ())
		ended <- err
	}()
	err := l.shootAt(c, s, started, ended)
	l.history.add(daemonGone)
	if s.hit != "" {
		l.delete(c)
	}
	if s.hit != "" && then == spoilt {
		err = errors.Join(err, l.spoil())
	}
	return errors.Join(err, l.daemon.release())
}

// spoil makes garbage of the records that have a version before them.
func (l *liver) spoil() error {
	names, err := l.records()
	for _, name := range names {
		if exists(name + "~") {
			// Removed first: both may be the same file.
			err = errors.Join(err, os.Remove(name), os.WriteFile(name, []byte("garbage"), 0o600))
		}
	}
	return err
}

// shootAt makes the call when the traced daemon listens. That it is not
// answered if the daemon was killed is no error.
func (l *liver) shootAt(c callout, s *shot, started <-chan *os.Process, ended <-chan error) error {
	var daemon *os.Process
	select {
	case daemon = <-started:
	case err := <-ended:
		return fmt.Errorf("the daemon does not start: %w", err)
	}
	err := eventually(l.listens)
	if err == nil {
		s.armed.Store(true)
		err = l.once(c)
	}
	_ = daemon.Kill() // it may be dead
	if tracing := <-ended; tracing != nil {
		return tracing
	}
	if s.hit != "" {
		return nil
	}
	return err
}

// delete does what the kubelet does with the directory of a set-up that
// failed, whatever comes of it.
func (l *liver) delete(c callout) {
	if c.command == flex.CommandMount || c.command == flex.CommandMountDevice {
		_ = os.Remove(l.dir(c))
	}
}

// follow is what comes at once after a kill.
func (l *liver) follow(i int, then sequel) error {
	victim := l.callouts[i]
	if victim.undoes() {
		delete(l.mounted, victim.pod) // it may be unmounted or not
	} else if dir := l.dir(victim); victim.command == flex.CommandMount && isMount(dir) {
		// The kubelet takes it for finished, so it has to be.
		if err := (place{dir: dir, volume: l.volume, pod: victim.pod}).check(); err != nil {
			return fmt.Errorf("at once: %w", err)
		}
	}
	if err := l.intact("at once"); err != nil {
		return err
	}
	switch then {
	case reversed:
		return errors.Join(l.lead(victim.reversed()), l.lead(victim))
	case forgotten:
		return nil
	}
	return l.lead(victim)
}

// rest are the calls after the one at i. After one that was forgotten they are
// those that take down what is there.
func (l *liver) rest(i int, then sequel) []callout {
	calls := l.callouts[i+1:]
	if then != forgotten || l.callouts[i].command == flex.CommandExpandFS {
		return calls
	}
	return slices.DeleteFunc(slices.Clone(calls), func(c callout) bool {
		// The kubelet does not call for a directory that is gone, nor for a
		// device that is not mounted.
		dir := l.dir(c)
		return !c.undoes() || dir != "" && !exists(dir) || c.command == flex.CommandUnmountDevice && !isMount(dir)
	})
}
