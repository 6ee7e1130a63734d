package objects

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// silence is how long a watch may say nothing. The API server sends a bookmark each minute.
const silence = 2 * time.Minute

// A Liveness says whether a watch keeps a cache up to date. client-go's reflector does not
// tell: after the end of a watch it waits a second and more before it starts the next one.
type Liveness struct {
	mu      sync.Mutex
	running watch.Interface // nil: there is no watch
	since   time.Time       // when that began
	heard   time.Time       // when the watch was heard last
}

// Live reports whether there is a watch that was heard within two minutes, and since when
// that is so, or is not.
func (l *Liveness) Live() (live bool, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == nil || time.Since(l.heard) < silence {
		return l.running != nil, l.since
	}
	return false, l.heard.Add(silence)
}

// Fail notes that no watch could be started.
func (l *Liveness) Fail() { l.end(nil) }

// Relay returns a watch of what read makes of the events of from. It notes the end of from
// before the reflector learns of it.
func (l *Liveness) Relay(from watch.Interface, read func(watch.Event) watch.Event) watch.Interface {
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	now := time.Now()
	l.mu.Lock()
	l.running, l.since, l.heard = to, now, now
	l.mu.Unlock()
	go func() {
		defer close(events)
		defer l.end(to)
		defer from.Stop()
		for {
			select {
			case e, ok := <-from.ResultChan():
				if !ok {
					return
				}
				e = read(e)
				l.hear(to, e)
				select {
				case events <- e:
				case <-to.StopChan():
					return
				}
			case <-to.StopChan():
				return
			}
		}
	}()
	return to
}

func (l *Liveness) hear(w watch.Interface, e watch.Event) {
	if e.Type == watch.Error {
		l.end(w)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == w {
		l.heard = time.Now()
	}
}

// end notes the end of a watch, of any if w is nil. The next one may run already.
func (l *Liveness) end(w watch.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running != nil && (w == nil || l.running == w) {
		l.running, l.since = nil, time.Now()
	}
}
