package faults

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// An ending is what happens after flexdriver was killed while it unmounted
// without the daemon.
type ending int

const (
	// stillAlone: the kubelet calls again, and the daemon comes later.
	stillAlone ending = iota
	// the daemon comes, and then the call.
	_
	// wanted: the daemon comes, and the pod wants its volume after all.
	wanted
	endings
)

func (e ending) String() string {
	return [...]string{"again without the daemon", "again with the daemon", "mounted again"}[e]
}

// killAlone kills flexdriver in the middle of an unmount that it makes by
// itself, since there is no daemon.
func (w *world) killAlone() {
	for _, name := range []string{"plain", "direct"} {
		l := w.newLiver(lives()[name])
		baseline := &shot{}
		if err := l.oneAlone(baseline, stillAlone); err != nil {
			w.report.wrong(fmt.Sprintf("unmount of %s without the daemon: %v", name, err))
			return
		}
		at := 0
		for n, what := range baseline.steps {
			if !w.All && !matters(what) {
				continue
			}
			at++
			for e := range endings {
				if !w.All && int(e) != at%int(endings) {
					continue
				}
				s := &shot{left: n + 1}
				if err := l.oneAlone(s, e); err != nil {
					w.report.wrong(fmt.Sprintf("flexdriver unmounts %s alone, killed after step %d (%s), then %v: %v", name, n+1, s.hit, e, err))
					return
				}
				w.report.count("flexdriver killed in unmount without the daemon")
			}
		}
	}
}

// oneAlone is one life that ends without the daemon.
func (l *liver) oneAlone(s *shot, e ending) error {
	mount, unmount := callout{flex.CommandMount, "a"}, callout{flex.CommandUnmount, "a"}
	if err := l.lead(mount); err != nil {
		return err
	}
	l.daemon.hold(unix.SIGKILL)
	s.armed.Store(true)
	tracer := &trace.Tracer{Name: "flexdriver", Victim: s}
	if _, err := tracer.Run(l.plugin(l.flexDriver), append([]string{l.plugin(l.flexDriver)}, l.argv(unmount)...), os.Environ()); err != nil {
		return err
	}
	delete(l.mounted, "a")
	if err := l.end(e, mount, unmount); err != nil {
		return err
	}
	if err := l.gone(); err != nil {
		return fmt.Errorf("after all: %w", err)
	}
	l.inOrder()
	return nil
}

func (l *liver) end(e ending, mount, unmount callout) error {
	if e == stillAlone {
		status, err := l.execute(context.Background(), l.flexDriver, l.argv(unmount), callTimeout)
		if err != nil || status.Status != flex.StatusSuccess {
			return fmt.Errorf("again: %s: %s %w", status.Status, status.Message, err)
		}
		if err := l.made(unmount); err != nil {
			return err
		}
		return l.daemon.release()
	}
	if err := l.daemon.release(); err != nil {
		return err
	}
	calls := []callout{unmount}
	if e == wanted && !isMount(l.dir(mount)) { // or the kubelet takes it for done
		calls = slices.Insert(calls, 0, mount)
	}
	for _, c := range calls {
		if err := l.lead(c); err != nil {
			return err
		}
	}
	return nil
}
