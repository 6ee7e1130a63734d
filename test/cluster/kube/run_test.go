package kube_test

import (
	"context"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// run attaches and detaches whatever is asked for, until stop.
func (x attacher) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			w, err := x.p.Admin().StorageV1().VolumeAttachments().Watch(ctx, metav1.ListOptions{})
			if err != nil {
				return
			}
			for event := range w.ResultChan() {
				if o, ok := event.Object.(*storagev1.VolumeAttachment); ok {
					x.work(ctx, o)
				}
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// work does one step. A conflict means that there will be another event.
func (x attacher) work(ctx context.Context, o *storagev1.VolumeAttachment) {
	client := x.p.Admin().StorageV1().VolumeAttachments()
	begun := slices.Contains(o.Finalizers, finalizer)
	var err error
	switch {
	case o.DeletionTimestamp != nil && begun:
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == finalizer })
		_, err = client.Update(ctx, o, metav1.UpdateOptions{})
	case o.DeletionTimestamp != nil:
	case !begun:
		o.Finalizers = append(o.Finalizers, finalizer)
		_, err = client.Update(ctx, o, metav1.UpdateOptions{})
	case !o.Status.Attached:
		o.Status.Attached = true
		_, err = client.UpdateStatus(ctx, o, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		x.t.Errorf("attacher: %v", err)
	}
}
