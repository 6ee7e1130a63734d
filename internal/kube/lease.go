package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// LeaseOptions say which Lease keeps two apart, and who wants it.
type LeaseOptions struct {
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

// A Lease is one that is held. Unlike an [Election] it is not given up by whoever
// cannot renew it in time: the answer to [Lease.Held] changes, and changes back.
type Lease struct {
	c       *Cluster
	o       LeaseOptions
	stop    context.CancelFunc
	stopped chan struct{}

	mu      sync.Mutex
	object  *coordinationv1.Lease // as it was stored last
	renewed time.Time             // before the request that did
	lost    error                 // for good
}

// TakeLease takes a Lease, and waits for the end of that of a holder who may be
// dead. ErrHeld: the holder is alive.
func (c *Cluster) TakeLease(ctx context.Context, o LeaseOptions) (*Lease, error) {
	o.Duration = cmp.Or(o.Duration, 30*time.Second)
	l := &Lease{c: c, o: o, stopped: make(chan struct{})}
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
func (l *Lease) take(ctx context.Context) error {
	var before *coordinationv1.Lease // as it was when its holder was first seen
	var since time.Time
	for {
		there, err := l.get(ctx)
		switch {
		case err != nil && !errors.Is(err, clusterview.ErrGone):
		case there == nil, free(there, l.o), before != nil && same(there, before) && time.Since(since) > durationOf(there, l.o.Duration):
			err = l.put(ctx, there)
			if err == nil {
				return nil
			}
		case before == nil || holderOf(there) != holderOf(before):
			if l.o.Waiting != nil && before == nil {
				l.o.Waiting(holderOf(there))
			}
			before, since = there, time.Now()
		case !same(there, before):
			return fmt.Errorf("%w: %s holds Lease %s/%s and is alive; wait until that has ended, or end it", clusterview.ErrHeld, holderOf(there), l.o.Namespace, l.o.Name)
		}
		if errors.Is(err, clusterview.ErrRefused) {
			return err
		}
		if pause(ctx, l.o.Duration/30) != nil {
			switch {
			case err != nil:
				return err
			case before != nil:
				return fmt.Errorf("%w: %s holds Lease %s/%s, and it is not known whether that is alive; try again", clusterview.ErrHeld, holderOf(before), l.o.Namespace, l.o.Name)
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

// same reports whether a Lease has not been renewed.
func same(a, b *coordinationv1.Lease) bool {
	x, y := leaseView(a), leaseView(b)
	return x.Holder == y.Holder && x.Renewed.Equal(y.Renewed)
}

// free reports whether nobody holds it, or who wants it by a request whose answer
// got lost, or somebody who is dead for certain.
func free(o *coordinationv1.Lease, want LeaseOptions) bool {
	return holderOf(o) == want.Identity || leaseView(o).Free(want.Dead)
}

func holderOf(o *coordinationv1.Lease) string { return leaseView(o).Holder }

func durationOf(o *coordinationv1.Lease, otherwise time.Duration) time.Duration {
	return cmp.Or(leaseView(o).Duration, otherwise)
}

// leaseView is what the object says.
func leaseView(o *coordinationv1.Lease) (l clusterview.Lease) {
	l.Process = o.Annotations[clusterview.LeaseProcess]
	if o.Spec.HolderIdentity != nil {
		l.Holder = *o.Spec.HolderIdentity
	}
	if o.Spec.RenewTime != nil {
		l.Renewed = o.Spec.RenewTime.UTC()
	}
	if o.Spec.LeaseDurationSeconds != nil {
		l.Duration = time.Duration(*o.Spec.LeaseDurationSeconds) * time.Second
	}
	return l
}

// what names the Lease in errors.
func (l *Lease) what(do string) string {
	return fmt.Sprintf("%s Lease %s/%s", do, l.o.Namespace, l.o.Name)
}

func (l *Lease) get(ctx context.Context) (*coordinationv1.Lease, error) {
	o, err := l.bounded(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.c.coordination.Leases(l.o.Namespace).Get(ctx, l.o.Name, metav1.GetOptions{})
	})
	if err != nil {
		return nil, answered(err, l.what("look at"))
	}
	return o, nil
}

// bounded gives a request less time than there is between two renewals.
func (l *Lease) bounded(ctx context.Context, do func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, min(requestTimeout, l.o.Duration/6))
	defer cancel()
	return do(ctx)
}

// put writes the Lease over the one that was read, or as a new one.
func (l *Lease) put(ctx context.Context, over *coordinationv1.Lease) error {
	begun := time.Now()
	o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.o.Namespace, Name: l.o.Name}}
	if over != nil {
		o = over.DeepCopy()
	}
	if holderOf(o) != l.o.Identity {
		o.Spec.AcquireTime = &metav1.MicroTime{Time: begun}
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	o.Annotations[clusterview.LeaseProcess] = l.o.Process
	o.Spec.HolderIdentity = &l.o.Identity
	o.Spec.RenewTime = &metav1.MicroTime{Time: begun}
	o.Spec.LeaseDurationSeconds = new(int32((l.o.Duration + time.Second - 1) / time.Second))
	o, err := l.bounded(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		if over == nil {
			return l.c.coordination.Leases(l.o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		}
		return l.c.coordination.Leases(l.o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	})
	if err != nil {
		return answered(err, l.what("take"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.object, l.renewed = o, begun
	return nil
}

// renew renews until it is stopped or somebody else has the Lease.
func (l *Lease) renew(ctx context.Context) {
	defer close(l.stopped)
	wait := l.o.Duration / 3
	for pause(ctx, wait) == nil {
		err := l.put(ctx, l.stored())
		if errors.Is(err, clusterview.ErrConflict) || errors.Is(err, clusterview.ErrGone) {
			err = l.look(ctx, err)
		}
		if wait = l.o.Duration / 3; err != nil {
			wait = l.o.Duration / 30
		}
		if errors.Is(err, clusterview.ErrLost) {
			l.mu.Lock()
			l.lost = err
			l.mu.Unlock()
			return
		}
	}
}

// look finds out why the Lease is not what was written last. It may be that the
// answer to the last write got lost.
func (l *Lease) look(ctx context.Context, why error) error {
	there, err := l.get(ctx)
	switch {
	case errors.Is(err, clusterview.ErrGone):
		return fmt.Errorf("%w: Lease %s/%s was deleted", clusterview.ErrLost, l.o.Namespace, l.o.Name)
	case err != nil:
		return err
	case holderOf(there) != l.o.Identity:
		return fmt.Errorf("%w: Lease %s/%s is that of %q now", clusterview.ErrLost, l.o.Namespace, l.o.Name, holderOf(there))
	}
	l.mu.Lock()
	l.object = there
	l.mu.Unlock()
	return why // and the next try fits
}

func (l *Lease) stored() *coordinationv1.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.object
}

// Held returns nil as long as nobody else may have the Lease, with time enough
// for one request. ErrLost: somebody has. ErrAway: it could not be renewed in
// time, and that is still being tried. It asks nothing of the API server.
func (l *Lease) Held() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return l.lost
	}
	// The monotonic clock stands still while the machine sleeps.
	now := time.Now()
	passed := max(now.Sub(l.renewed), now.Round(0).Sub(l.renewed.Round(0)))
	if passed > l.o.Duration-min(requestTimeout, l.o.Duration/3) {
		return fmt.Errorf("%w: Lease %s/%s was renewed %s ago", clusterview.ErrAway, l.o.Namespace, l.o.Name, passed.Round(time.Second))
	}
	return nil
}

// Release gives the Lease to the next. It need not succeed: then it ends by
// itself.
func (l *Lease) Release(ctx context.Context) error {
	l.stop()
	<-l.stopped
	l.mu.Lock()
	o, lost := l.object.DeepCopy(), l.lost
	l.mu.Unlock()
	if lost != nil {
		return nil //nolint:nilerr // it is somebody else's
	}
	o.Spec.HolderIdentity = new("")
	delete(o.Annotations, clusterview.LeaseProcess)
	_, err := l.bounded(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.c.coordination.Leases(l.o.Namespace).Update(ctx, o, metav1.UpdateOptions{})
	})
	if err != nil {
		return answered(err, l.what("release"))
	}
	return nil
}
