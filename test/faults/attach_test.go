package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// An attachment is what kube-controller-manager knows of a volume on the node.
type attachment struct {
	mu    sync.Mutex
	state attachState
}

type attachState int

const (
	detached attachState = iota
	uncertain
	attached
)

func (a *attachment) set(s attachState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state = s
}

func (a *attachment) get() attachState {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// controlPlane attaches and detaches a volume, until ctx ends
// (pkg/controller/volume/attachdetach/reconciler).
func (w *world) controlPlane(ctx context.Context, v *volume) {
	random := w.random("control plane " + v.name)
	wait := 5 * time.Millisecond
	for ctx.Err() == nil {
		if w.reconcileAttachment(ctx, random, v) {
			wait = 5 * time.Millisecond
		} else {
			wait = min(2*wait, 300*time.Millisecond)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// reconcileAttachment makes one call if one is due. An attach that failed may be done all
// the same, so the volume is detached when no pod wants it (OG, GenerateAttachVolumeFunc).
func (w *world) reconcileAttachment(ctx context.Context, random *rand.Rand, v *volume) (well bool) {
	a := &v.attachment
	wanted := w.cluster.wants(v) || a.get() != detached && w.usesDevice(v)
	switch {
	case wanted && a.get() != attached:
		a.set(uncertain)
		if w.call(ctx, random, v.driver, "attach", w.options(v, false, ""), nodeName) != nil {
			return false
		}
		a.set(attached)
	case wanted && random.IntN(200) == 0:
		// A Failure tells nothing. That it is not attached would be an answer
		// without attached, which is checked there.
		_ = w.call(ctx, random, v.driver, "isattached", w.options(v, false, ""), nodeName)
	case !wanted && a.get() != detached:
		a.set(uncertain)
		if w.call(ctx, random, v.driver, "detach", v.name, nodeName) != nil {
			return false
		}
		a.set(detached)
	}
	return true
}
