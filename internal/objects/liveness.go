package objects

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// before the reflector learns of it. A watch that was started with initial events is a list
// until their end.
func (l *Liveness) Relay(from watch.Interface, o metav1.ListOptions, read func(watch.Event) watch.Event) watch.Interface {
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	if o.SendInitialEvents == nil {
		l.begin(to)
	}
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

func (l *Liveness) begin(w watch.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.running, l.since, l.heard = w, now, now
}

func (l *Liveness) hear(w watch.Interface, e watch.Event) {
	switch {
	case e.Type == watch.Error:
		l.end(w)
		return
	case endsInitialEvents(e):
		l.begin(w)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running == w {
		l.heard = time.Now()
	}
}

func endsInitialEvents(e watch.Event) bool {
	o, err := meta.Accessor(e.Object)
	return e.Type == watch.Bookmark && err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// end notes the end of a watch, of any if w is nil. The next one may run already.
func (l *Liveness) end(w watch.Interface) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running != nil && (w == nil || l.running == w) {
		l.running, l.since = nil, time.Now()
	}
}
