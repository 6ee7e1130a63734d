package kube

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// An Election chooses a leader among processes by a Lease. For a moment two may lead,
// if one of them was suspended; what they do has to tolerate that.
type Election struct {
	// Namespace and Name are the Lease's; each candidate has its own Identity.
	Namespace, Name, Identity string
	// Duration of the Lease; zero: 15 s. A leader stops after two thirds of it
	// without an answer of the API server.
	Duration time.Duration
}

// Lead calls while each time when this process becomes the leader, until ctx ends. The
// context of while ends when the process is no longer the leader.
func (c *Cluster) Lead(ctx context.Context, e Election, while func(context.Context)) {
	for ctx.Err() == nil {
		if err := c.leadOnce(ctx, e, while); err != nil {
			c.log.Error("there is no election", "lease", e.Namespace+"/"+e.Name, "identity", e.Identity, "error", err)
			return
		}
	}
}

// leadOnce is a candidate until it has been the leader once.
func (c *Cluster) leadOnce(ctx context.Context, e Election, while func(context.Context)) error {
	duration := cmp.Or(e.Duration, 15*time.Second)
	begun, done := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     c.coordination,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
		},
		LeaseDuration:   duration,
		RenewDeadline:   duration * 2 / 3,
		RetryPeriod:     duration / 8,
		ReleaseOnCancel: true,
		Name:            e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(done)
				close(begun)
				if ctx.Err() == nil { // else the caller has gone
					while(ctx)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("take part in the election for Lease %s/%s: %w", e.Namespace, e.Name, err)
	}
	elector.Run(ctx)
	select {
	case <-begun:
		<-done
	default: // ctx ended before
	}
	return nil
}
