package journal

// This file keeps two operators apart by a Lease. client-go's LeaderElector would not do:
// it gives a Lease up that it cannot renew in time, where a migration has to go on for as long
// as no other operator has it, and it waits for the end of a Lease also if its holder is known to be
// dead.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// LockOptions say which Lease it is, and who wants it.
type LockOptions struct {
	Namespace, Name string
	// Identity is who wants it, for people, and unlike any other.
	Identity string
	// Process names this process, so that another one can tell whether it is Dead
	// without waiting until its Lease ends. Both may be empty.
	Process string
	Dead    func(process string) bool
	// Duration is after how long a Lease that is not renewed ends; zero: 30 s.
	Duration time.Duration
	// Waiting is told who holds it, once, if that has to be waited for.
	Waiting func(holder string)
}

// A Lock is a Lease that is held. It is not given up when it cannot be renewed in time: the
// answer to [Lock.Held] changes, and changes back.
type Lock struct {
	c       *objects.Client
	o       LockOptions
	stop    context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	object  *coordinationv1.Lease // as it was stored last
	renewed time.Time             // before the request that did
	lost    error                 // for good
}

// TakeLock takes a Lease, and waits for the end of that of a holder who may be
// dead. ErrHeld: the holder is alive.
func TakeLock(ctx context.Context, c *objects.Client, o LockOptions) (*Lock, error) {
	o.Duration = cmp.Or(o.Duration, 30*time.Second)
	l := &Lock{c: c, o: o, stopped: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, o.Duration*3/2)
	defer cancel()
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.renew(renewing)
	return l, nil
}

// take tries until it has it.
func (l *Lock) take(ctx context.Context) error {
	var before LockView // as it was when its holder was first seen
	var since time.Time
	for {
		there, err := l.get(ctx)
		now := LockViewOf(there)
		switch {
		case err != nil:
		// A holder of this identity had a request without an answer.
		case now.Holder == l.o.Identity, now.Free(l.o.Dead), now == before && time.Since(since) > cmp.Or(now.Duration, l.o.Duration):
			err = l.put(ctx, there)
			if err == nil {
				return nil
			}
		case now.Holder != before.Holder:
			if l.o.Waiting != nil && before.Holder == "" {
				l.o.Waiting(now.Holder)
			}
			before, since = now, time.Now()
		case now != before: // it was renewed
			return fmt.Errorf("%w: %s holds Lease %s/%s and is alive; wait until that has ended, or end it", ErrLockHeld, now.Holder, l.o.Namespace, l.o.Name)
		}
		if objects.OutcomeOf(err) == objects.Refused {
			return err
		}
		if pause(ctx, l.o.Duration/30) != nil {
			switch {
			case err != nil:
				return err
			case before.Holder != "":
				return fmt.Errorf("%w: %s holds Lease %s/%s, and it is not known whether that is alive; try again", ErrLockHeld, before.Holder, l.o.Namespace, l.o.Name)
			}
			return ctx.Err()
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Errors of a lock.
var (
	// ErrHeld: another process has the Lease.
	ErrLockHeld = errors.New("another operator has the Lease")
	// ErrLost: another process has taken it, or it was deleted.
	ErrLost = errors.New("the Lease is not held any more")
	// ErrStale: it was not renewed in time, which is still being tried.
	ErrStale = errors.New("the Lease could not be renewed in time")
)

func (l *Lock) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	return objects.Leases().Get(ctx, l.c, l.o.Namespace, l.o.Name)
}

// bounded gives a request less time than there is between two renewals.
func (l *Lock) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.o.Duration/6)
}

// write creates the Lease, or writes it over the one that was read.
func (l *Lock) write(ctx context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := l.bounded(ctx)
	defer cancel()
	o.TypeMeta = metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"}
	object, err := objects.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	put := l.c.Update
	if o.ResourceVersion == "" {
		put = l.c.Create
	}
	stored, err := put(ctx, objects.Leases().Resource, object)
	if err != nil {
		return nil, err
	}
	return objects.As[coordinationv1.Lease](stored)
}

// put writes the Lease over the one that was read, or as a new one.
func (l *Lock) put(ctx context.Context, over *coordinationv1.Lease) error {
	begun := time.Now()
	o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.o.Namespace, Name: l.o.Name}}
	if over != nil {
		o = over.DeepCopy()
	}
	if LockViewOf(o).Holder != l.o.Identity {
		o.Spec.AcquireTime = &metav1.MicroTime{Time: begun}
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[processAnnotation] = l.o.Process
	o.Spec.HolderIdentity = &l.o.Identity
	o.Spec.RenewTime = &metav1.MicroTime{Time: begun}
	o.Spec.LeaseDurationSeconds = new(int32((l.o.Duration + time.Second - 1) / time.Second))
	o, err := l.write(ctx, o)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.object, l.renewed = o, begun
	return nil
}

// renew renews until it is stopped or another process has the Lease.
func (l *Lock) renew(ctx context.Context) {
	defer close(l.stopped)
	wait := l.o.Duration / 3
	for pause(ctx, wait) == nil {
		err := l.put(ctx, l.stored())
		if is := objects.OutcomeOf(err); is == objects.Conflict || is == objects.Gone {
			err = l.look(ctx, err)
		}
		if wait = l.o.Duration / 3; err != nil {
			wait = l.o.Duration / 30
		}
		if errors.Is(err, ErrLost) {
			l.mu.Lock()
			l.lost = err
			l.mu.Unlock()
			return
		}
	}
}

// look finds out why the Lease is not what was written last. It may be that the
// answer to the last write got lost.
func (l *Lock) look(ctx context.Context, why error) error {
	there, err := l.get(ctx)
	switch holder := LockViewOf(there).Holder; {
	case err != nil:
		return err
	case there == nil:
		return fmt.Errorf("%w: Lease %s/%s was deleted; resume", ErrLost, l.o.Namespace, l.o.Name)
	case holder != l.o.Identity:
		return fmt.Errorf("%w: Lease %s/%s is that of %q now; wait until that is done, then resume", ErrLost, l.o.Namespace, l.o.Name, holder)
	}
	l.mu.Lock()
	l.object = there
	l.mu.Unlock()
	return why // and the next try fits
}

func (l *Lock) stored() *coordinationv1.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.object
}

// Held returns nil as long as nobody else may have the Lease, with time enough
// for one request. ErrLost: another process has. ErrStale: it could not be renewed in
// time, and that is still being tried. It asks nothing of the API server.
func (l *Lock) Held() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost
	}
	// The monotonic clock stands still while the machine sleeps.
	now := time.Now()
	passed := max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
	if passed > l.o.Duration-min(objects.RequestTimeout, l.o.Duration/3) {
		return fmt.Errorf("%w: Lease %s/%s was renewed %s ago", ErrStale, l.o.Namespace, l.o.Name, passed.Round(time.Second))
	}
	return nil
}

// Release gives the Lease to the next. It need not succeed: then it ends by
// itself.
func (l *Lock) Release(ctx context.Context) error {
	l.stop()
	<-l.stopped
	l.mu.Lock()
	o, lost := l.object.DeepCopy(), l.lost
	l.mu.Unlock()
	if lost != nil {
		return nil //nolint:nilerr // it is another holder's
	}
	o.Spec.HolderIdentity = new("")
	delete(o.Annotations, processAnnotation)
	_, err := l.write(ctx, o)
	return err
}
