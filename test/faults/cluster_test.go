package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// A cluster is the pods that there should be on the node.
type cluster struct {
	mu   sync.Mutex
	pods map[string]*pod // by UID
}

// A pod is from its creation until the kubelet has cleaned up after it.
type pod struct {
	uid     string
	uses    []*use
	deleted chan struct{} // closed when it is deleted
	once    sync.Once
}

// A use is a volume in a pod.
type use struct {
	volume   *volume
	readOnly bool
	// ready is closed when the pod has the volume for the first time.
	ready chan struct{}
	once  sync.Once
}

func (u *use) isReady() { u.once.Do(func() { close(u.ready) }) }

func (p *pod) delete() { p.once.Do(func() { close(p.deleted) }) }

func (p *pod) gone() bool {
	select {
	case <-p.deleted:
		return true
	default:
		return false
	}
}

func (c *cluster) add(p *pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		c.pods = map[string]*pod{}
	}
	c.pods[p.uid] = p
}

func (c *cluster) remove(p *pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, p.uid)
}

func (c *cluster) has(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[uid] != nil
}

func (c *cluster) all() []*pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []*pod
	for _, p := range c.pods {
		pods = append(pods, p)
	}
	return pods
}

// wants reports whether a pod that is not deleted uses the volume.
func (c *cluster) wants(v *volume) bool {
	for _, p := range c.all() {
		for _, u := range p.uses {
			if u.volume == v && !p.gone() {
				return true
			}
		}
	}
	return false
}

// makePods keeps so many pods on the node as the plan wants.
func (w *world) makePods(ctx context.Context, round int) {
	var slots sync.WaitGroup
	for slot := range w.Pods {
		slots.Go(func() {
			random := w.random(fmt.Sprintf("pods %d %d", round, slot))
			for n := 0; ctx.Err() == nil; n++ {
				w.onePod(ctx, random, fmt.Sprintf("p%d-%d-%d", round, slot, n))
			}
		})
	}
	slots.Wait()
}

// onePod is a pod's life as the user sees it. At the end of the round it is
// left running.
func (w *world) onePod(ctx context.Context, random *rand.Rand, uid string) {
	p := &pod{uid: uid, deleted: make(chan struct{})}
	for _, n := range random.Perm(len(w.volumes))[:1+random.IntN(2)] {
		p.uses = append(p.uses, &use{volume: w.volumes[n], readOnly: random.IntN(4) == 0, ready: make(chan struct{})})
	}
	w.cluster.add(p)
	w.admit(p)
	impatient := random.IntN(5) == 0
	after := upTo(random, 150*time.Millisecond)
	if !impatient {
		for _, u := range p.uses {
			select {
			case <-u.ready:
			case <-ctx.Done():
				return
			case <-time.After(3 * time.Second): // its user gives up
			}
		}
	}
	select {
	case <-time.After(after):
		p.delete()
	case <-ctx.Done():
		return
	}
	// The next one comes when this one has gone, or nearly.
	deadline := time.After(200 * time.Millisecond)
	for exists(w.podDir(uid)) {
		select {
		case <-deadline:
			return
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (w *world) podDir(uid string) string { return w.kubeletDir() + "/pods/" + uid }

// admit tells the kubelet of a pod, if it is running.
func (w *world) admit(p *pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kubelet != nil {
		w.kubelet.take(p)
	}
}

// startKubelet starts one, which finds out from its directories what it had.
func (w *world) startKubelet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kubelet == nil {
		w.kubelet = newKubelet(w)
		w.kubelet.reconstruct()
	}
}

// stopKubelet ends it with the callouts that it is waiting for.
func (w *world) stopKubelet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kubelet != nil {
		w.kubelet.stop()
		w.kubelet = nil
	}
}

// usesDevice is node.status.volumesInUse: what the kubelet has told about a
// volume, which stays while no kubelet runs.
func (w *world) usesDevice(v *volume) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kubelet == nil {
		return true
	}
	d := w.kubelet.device(v)
	return d.hasUsers() || d.isMounted()
}

// eventually waits until do succeeds.
func eventually(do func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if err := do(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// removeDir removes an empty directory, or says why it cannot.
func removeDir(dir string) error {
	if err := os.Remove(dir); err != nil && exists(dir) {
		return err
	}
	return nil
}
