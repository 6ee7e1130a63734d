package kube

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
)

// doom notes that we delete an object.
func (a *Attachments) doom(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, when := range a.doomed {
		if time.Since(when) > 10*time.Minute { // the informer has seen it
			delete(a.doomed, other)
		}
	}
	a.doomed[uid] = time.Now()
}

func (a *Attachments) isDoomed(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.doomed[uid]
	return ok
}

// reuseAfter is how long a name is not used again after another component has deleted
// the object.
const reuseAfter = 10 * time.Second

// vanish notes that an object was deleted, unless we did that.
func (a *Attachments) vanish(o *storagev1.VolumeAttachment) {
	if a.isDoomed(o.UID) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, when := range a.vanished {
		if time.Since(when) > reuseAfter {
			delete(a.vanished, name)
		}
	}
	a.vanished[o.Name] = time.Now()
}
