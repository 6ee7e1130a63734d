package kube

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/gentype"
)

// An Election is who of several programs does something that one is to do. It
// is held by means of a Lease, as k8s.io/client-go/tools/leaderelection does it,
// which cannot be used: it imports client-go/kubernetes. As there, clocks are
// not compared: a Lease is over when nobody has been seen to renew it for its
// duration. Two may think that they lead for a moment all the same, if one of
// them was stopped; what they do has to bear that.
type Election struct {
	// Namespace and Name are the Lease's, Identity tells the candidates apart.
	Namespace, Name, Identity string
	// Duration is after how long another one takes over; zero: 15 s. Who leads
	// stops after two thirds of that without an answer of the API server.
	Duration time.Duration

	c      *Cluster
	leases *gentype.Client[*coordinationv1.Lease]
	held   *coordinationv1.Lease // as it was seen last
	seen   time.Time             // when it was first seen like that
}

// Lead calls while each time when this program is the one, with a context that
// ends when it is not any more, until ctx ends.
func (c *Cluster) Lead(ctx context.Context, e Election, while func(context.Context)) {
	e.c, e.leases = c, c.clients.leases(e.Namespace)
	e.Duration = cmp.Or(e.Duration, 15*time.Second)
	log := c.log.With("lease", e.Namespace+"/"+e.Name, "identity", e.Identity)
	for pause(ctx, 0) {
		won, err := e.renew(ctx)
		if err != nil {
			log.Debug("the Lease cannot be had now", "error", err)
		}
		if won {
			log.Info("this is the one that sweeps now")
			e.lead(ctx, while)
			log.Info("this is not the one that sweeps any more")
		}
		pause(ctx, e.retry())
	}
}

// retry is the pause between two tries, not the same for all.
func (e *Election) retry() time.Duration {
	base := e.Duration / 8
	return base + rand.N(base) //nolint:gosec // no secret depends on it
}

// pause reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// lead does the work and renews the Lease until that fails for too long.
func (e *Election) lead(ctx context.Context, while func(context.Context)) {
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		while(working)
	}()
	for last := time.Now(); pause(ctx, e.retry()); {
		renewing, cancel := context.WithDeadline(ctx, last.Add(e.Duration*2/3))
		won, err := e.renew(renewing)
		cancel()
		if won {
			last = time.Now()
		}
		if !won && err == nil || time.Since(last) >= e.Duration*2/3 {
			break
		}
	}
	stop()
	<-done
	e.release()
}

// renew takes the Lease, or keeps it. An error leaves open whose it is.
func (e *Election) renew(ctx context.Context) (won bool, err error) {
	now := metav1.NowMicro()
	found, err := request(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return e.leases.Get(ctx, e.Name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace}}
		e.claim(l, now)
		found, err = request(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return e.leases.Create(ctx, l, metav1.CreateOptions{})
		})
		return e.note(found, err)
	}
	if err != nil {
		return false, err
	}
	if e.held == nil || e.held.UID != found.UID || e.held.ResourceVersion != found.ResourceVersion {
		e.held, e.seen = found, time.Now()
	}
	holder := value(found.Spec.HolderIdentity)
	if holder != "" && holder != e.Identity && time.Since(e.seen) < time.Duration(value(found.Spec.LeaseDurationSeconds))*time.Second {
		return false, nil
	}
	l := found.DeepCopy()
	e.claim(l, now)
	found, err = request(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return e.leases.Update(ctx, l, metav1.UpdateOptions{})
	})
	return e.note(found, err)
}

// note remembers the answer to a write. Another one who was faster is no error.
func (e *Election) note(l *coordinationv1.Lease, err error) (won bool, _ error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	e.held, e.seen = l, time.Now()
	return true, nil
}

// claim makes the Lease ours.
func (e *Election) claim(l *coordinationv1.Lease, now metav1.MicroTime) {
	seconds := int32(max(e.Duration/time.Second, 1))
	if value(l.Spec.HolderIdentity) != e.Identity {
		l.Spec.AcquireTime = &now
		transitions := value(l.Spec.LeaseTransitions) + 1
		l.Spec.LeaseTransitions = &transitions
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &e.Identity, &seconds, &now
}

// release lets another one begin at once.
func (e *Election) release() {
	if e.held == nil || value(e.held.Spec.HolderIdentity) != e.Identity {
		return
	}
	l, nobody := e.held.DeepCopy(), ""
	l.Spec.HolderIdentity = &nobody
	e.held = nil
	// That of the caller has ended.
	_, err := request(context.Background(), func(ctx context.Context) (*coordinationv1.Lease, error) {
		return e.leases.Update(ctx, l, metav1.UpdateOptions{})
	})
	if err != nil {
		e.c.log.Info("the Lease is not given back; it ends by itself", "error", err)
	}
}

// value is what a pointer points to, or nothing.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
