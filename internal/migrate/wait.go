package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// waitFor is something to wait for.
type waitFor struct {
	what string // for people
	// resource, namespace and name are an object that changes when it is there;
	// without a name it is looked for every second.
	resource        schema.GroupVersionResource
	namespace, name string
	// look asks the API server for the present state: what a watch tells at first may
	// be a moment old.
	look func(ctx context.Context) (missing string, err error)
	// whole: a person's interruption does not end it.
	whole bool
	// atMost is another bound than the usual one, every another pause between two
	// looks where nothing is heard.
	atMost, every time.Duration
}

const (
	lookUnwatched = time.Second
	lookWatched   = 10 * time.Second // for the watches that say nothing
)

// errTimeout: what the wait was for did not come. It may come later.
var errTimeout = errors.New("timed out")

// wait waits until look says that nothing is missing any more.
func (m *migration) wait(ctx context.Context, w waitFor) error {
	most := m.r.timeout()
	if w.atMost > 0 {
		most = w.atMost
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, errTimeout)
	defer cancel()
	var said, missing string
	var events <-chan watch.Event
	for {
		if events == nil && w.name != "" {
			events, _ = m.c.Watch(ctx, w.resource, w.namespace, w.name, "") // without it, it is asked
		}
		now, err := w.look(ctx)
		switch {
		case err == nil && now == "":
			return nil
		case err == nil:
			missing = now
		case ctx.Err() == nil && !worthAnotherTry(err):
			return err
		case ctx.Err() == nil:
			missing = err.Error()
		}
		if missing != said && ctx.Err() == nil {
			said = missing
			m.tell(Waiting, m.rec.Stage, w.what+": "+missing)
		}
		if err := m.pause(ctx, w, &events); err != nil {
			return m.timedOut(ctx, w, missing, most, err)
		}
	}
}

// pause lasts until the object has changed, or it is time to look.
func (m *migration) pause(ctx context.Context, w waitFor, events *<-chan watch.Event) error {
	every := lookUnwatched
	if *events != nil {
		every = lookWatched
	}
	if w.every > 0 {
		every = w.every
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-m.r.enoughOutside(w.whole):
		return errEnough
	case <-time.After(every):
	case _, ok := <-*events:
		if !ok {
			*events = nil
			return sleep(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

func (m *migration) timedOut(ctx context.Context, w waitFor, missing string, most time.Duration, err error) error {
	if !errors.Is(context.Cause(ctx), errTimeout) || errors.Is(err, errEnough) {
		return err
	}
	if most < m.r.timeout() {
		return terminalError{fmt.Errorf("%w after %s: %s: %s", errTimeout, most, w.what, missing)}
	}
	return terminalError{fmt.Errorf("%w after %s (--timeout): %s: %s", errTimeout, most, w.what, missing)}
}

// lookFed is how often a feed is looked at.
const lookFed = 200 * time.Millisecond

// fed has a wait look at a feed, which costs no request, rather than watch the object.
func (m *migration) fed(ctx context.Context, w waitFor) waitFor {
	if f := m.r.feeds(); f != nil && f.nodes().Live(ctx) && f.documents().Live(ctx) {
		w.name, w.every = "", lookFed
	}
	return w
}

// seldomAsked returns an object as a feed has it, and asks for it as often as where a watch says
// nothing: a wait that only a feed could end would not end where that is behind.
func seldomAsked[T any](ctx context.Context, m *migration, k objects.Kind[T], namespace, name string) (*T, error) {
	last := m.asked[k.Resource.Resource]
	if last.Before(m.since) {
		last = m.since
	}
	if now := m.r.Now(); now.Sub(last) >= lookWatched {
		m.asked[k.Resource.Resource] = now
		return k.Get(ctx, m.c, namespace, name)
	}
	return lately(ctx, m.c, m.r.feeds(), k, namespace, name)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
