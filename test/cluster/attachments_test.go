package cluster

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attachmentNamed is a VolumeAttachment, nil if there is none.
func (w *world) attachmentNamed(name string) *storagev1.VolumeAttachment {
	w.t.Helper()
	o, err := w.Admin().StorageV1().VolumeAttachments().Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// attachments are all of the CSI driver.
func (w *world) attachments() (of []storagev1.VolumeAttachment) {
	w.t.Helper()
	list, err := w.Admin().StorageV1().VolumeAttachments().List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Spec.Attacher == w.driver {
			of = append(of, o)
		}
	}
	return of
}

// settle is how long something may take that goes on by itself. After an outage an
// informer waits for up to a minute until it asks the API server again (client-go
// v0.37.2, tools/cache/reflector.go, defaultBackoffMax with its jitter).
const settle = 90 * time.Second

// eventually waits until something holds, or calls otherwise.
func (w *world) eventually(holds func() bool, otherwise func()) {
	w.t.Helper()
	for deadline := time.Now().Add(settle); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			otherwise()
			return
		}
	}
}
