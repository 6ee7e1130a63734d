package kube

import (
	"context"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// A foreign is the mirror of one VolumeAttachment that somebody else has made:
// kube-controller-manager, if the same volume has a CSI PersistentVolume, too.
type foreign struct {
	mirror *mirror[*storagev1.VolumeAttachment]
	asked  atomic.Int64 // when somebody last asked, in nanoseconds
	stop   chan struct{}
	over   func()
}

// unasked is after how long nobody seems to want to know any more.
const unasked = 10 * time.Minute

// watched returns the mirror of one, nil if there is none.
func (a *Attachments) watched(name string) *foreign {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.foreign[name]
	if f != nil {
		f.asked.Store(time.Now().UnixNano())
	}
	return f
}

// foreigner returns the mirror of one, perhaps a new one.
func (a *Attachments) foreigner(name string) *foreign {
	if f := a.watched(name); f != nil {
		return f
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.foreign[name]; f != nil {
		return f
	}
	f := &foreign{stop: make(chan struct{})}
	f.asked.Store(time.Now().UnixNano())
	f.mirror = newMirror(a.cluster.storage.VolumeAttachments(),
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()},
		&storagev1.VolumeAttachment{}, trimAttachment, nil)
	f.over = func() { a.forget(name, f) }
	a.foreign[name] = f
	a.cluster.keep(f)
	return f
}

// drop stops watching one.
func (a *Attachments) drop(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.foreign[name]; f != nil {
		close(f.stop)
		delete(a.foreign, name)
	}
}

func (a *Attachments) forget(name string, f *foreign) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.foreign[name] == f {
		delete(a.foreign, name)
	}
}

// run mirrors until nobody asks any more.
func (f *foreign) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer f.over()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.mirror.run(ctx)
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
