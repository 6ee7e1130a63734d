package kube

import (
	"context"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// An unmanaged is the informer of one VolumeAttachment that flex2csi has not made. It
// is kube-controller-manager's, if the same volume also has a CSI PersistentVolume.
type unmanaged struct {
	informer *informer[*storagev1.VolumeAttachment]
	asked    atomic.Int64 // when it was last used, in nanoseconds
	stop     chan struct{}
	over     func()
}

// An elsewhere is the informer of all VolumeAttachments that flex2csi has not made. It runs
// while this node attaches volumes.
type elsewhere struct {
	unmanaged
	places
}

// watchElsewhere returns the informer, perhaps a new one.
func (a *Attachments) watchElsewhere() *elsewhere {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.elsewhere == nil {
		e := &elsewhere{unmanaged: unmanaged{stop: make(chan struct{})}}
		e.informer = newInformer(a.cluster.storage.VolumeAttachments(), metav1.ListOptions{LabelSelector: unlabeled},
			&storagev1.VolumeAttachment{}, trimElsewhere, func(o *storagev1.VolumeAttachment, _ bool) { e.add(o) })
		e.over = func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.elsewhere = nil
		}
		a.elsewhere = e
		a.cluster.keep(e)
	}
	a.elsewhere.asked.Store(time.Now().UnixNano())
	return a.elsewhere
}

// unasked is when an informer that was not used is stopped.
const unasked = 10 * time.Minute

// watched returns the informer of a VolumeAttachment, nil if there is none.
func (a *Attachments) watched(name string) *unmanaged {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.unmanaged[name]
	if f != nil {
		f.asked.Store(time.Now().UnixNano())
	}
	return f
}

// watchUnmanaged returns the informer of a VolumeAttachment, perhaps a new one.
func (a *Attachments) watchUnmanaged(name string) *unmanaged {
	if f := a.watched(name); f != nil {
		return f
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.unmanaged[name]; f != nil {
		return f
	}
	f := &unmanaged{stop: make(chan struct{})}
	f.asked.Store(time.Now().UnixNano())
	f.informer = newInformer(a.cluster.storage.VolumeAttachments(),
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()},
		&storagev1.VolumeAttachment{}, trimAttachment, a.changed)
	f.over = func() { a.forget(name, f) }
	a.unmanaged[name] = f
	a.cluster.keep(f)
	return f
}

// drop stops an informer.
func (a *Attachments) drop(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.unmanaged[name]; f != nil {
		close(f.stop)
		delete(a.unmanaged, name)
	}
}

func (a *Attachments) forget(name string, f *unmanaged) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unmanaged[name] == f {
		delete(a.unmanaged, name)
	}
}

// run runs the informer until it was not used for a while.
func (f *unmanaged) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer f.over()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.informer.run(ctx)
	}()
	tick := time.NewTicker(unasked / 4)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-f.stop:
			cancel()
		case <-tick.C:
			if time.Since(time.Unix(0, f.asked.Load())) > unasked {
				cancel()
			}
		}
		if ctx.Err() != nil {
			<-done
			return
		}
	}
}
