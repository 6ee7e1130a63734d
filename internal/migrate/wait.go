package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
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
	every := lookWatched
	if *events == nil {
		every = lookUnwatched // the watch may begin after a change
		if w.name != "" {
			*events, _ = m.c.Watch(ctx, w.resource, w.namespace, w.name, "")
		}
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

// lookFed is how often a feed is asked whether it has heard of an object.
const lookFed = 200 * time.Millisecond

// onFeed has a wait look when a feed has heard of the object of a node, rather than watch that, and
// seldom else: a wait that only a feed could end would not end where that is behind.
func (m *migration) onFeed(ctx context.Context, w waitFor) waitFor {
	f, look, node := m.r.feeds(), w.look, w.name
	m.unheard = true
	if f == nil || !f.nodes().Live(ctx) || !f.documents().Live(ctx) {
		return w
	}
	w.name, w.every = "", lookFed
	last, seldom := m.r.Now(), lookWatched
	heard, missing := "nothing", ""
	w.look = func(ctx context.Context) (string, error) {
		now, version := m.r.Now(), f.documents().VersionOf(bridgestatus.Namespace, node)+"/"+f.nodes().VersionOf("", node)
		if m.unheard = now.Sub(last) >= seldom; m.unheard {
			seldom *= 2
		} else if version == heard {
			return missing, nil
		}
		var err error
		if missing, err = look(ctx); err == nil {
			heard, last = version, now
		}
		return missing, err
	}
	return w
}

// getHeard returns an object as a feed has it, which is why a wait looks; else as it is now.
func getHeard[T any](ctx context.Context, m *migration, k objects.Kind[T], namespace, name string) (*T, error) {
	if m.unheard {
		return getPresent(ctx, m.c, m.r.feeds(), k, namespace, name)
	}
	return getRecent(ctx, m.c, m.r.feeds(), k, namespace, name)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
