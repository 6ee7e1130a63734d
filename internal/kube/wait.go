package kube

import (
	"context"
	"log/slog"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A wait is one operation on one attachment. It listens for changes from its beginning
// on, so that it misses none.
type wait struct {
	*Attachments
	want *csivol.Attachment
	name string
	news *listener
	stop []func()
}

func (a *Attachments) wait(want *csivol.Attachment) *wait {
	w := &wait{Attachments: a, want: want, name: objectName(want), news: newListener()}
	w.stop = append(w.stop, a.made.notifier.listen(w.name, w.news))
	if f := a.watched(w.name); f != nil {
		w.stop = append(w.stop, f.informer.notifier.listen(w.name, w.news))
	}
	return w
}

// log returns the log, with what the caller's context says of the volume.
func (w *wait) log(ctx context.Context) *slog.Logger {
	return volumelog.Logger(ctx, w.cluster.log).With("volumeAttachment", w.name, "node", w.want.Node)
}

func (w *wait) end() {
	for _, stop := range w.stop {
		stop()
	}
}

// cached returns the attachment of an informer, and whether that informer is live.
func (w *wait) cached() (o *storagev1.VolumeAttachment, ok, live bool) {
	if o, ok := w.made.get(w.name); ok {
		return o, true, w.made.live.Load()
	}
	if f := w.watched(w.name); f != nil {
		o, ok := f.informer.get(w.name)
		return o, ok, f.informer.live.Load()
	}
	return nil, false, false
}

// lately returns the attachment as an informer had it a moment ago, or nil.
func (w *wait) lately() *storagev1.VolumeAttachment {
	m := w.made
	o, ok := m.get(w.name)
	if f := w.watched(w.name); !ok && f != nil {
		m = f.informer
		o, ok = m.get(w.name)
	}
	if !ok || !m.lately() || w.isDoomed(o.UID) || w.news.isGone(o.UID) {
		return nil
	}
	return o
}

// known returns the attachment; nil if there is none. The answer may be slightly stale.
// It makes a request only if no informer is live: while the watch is broken another
// object may have replaced it, with another publish context. During a short outage of
// the API server it returns what was last seen.
func (w *wait) known(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	o, ok, live := w.cached()
	switch {
	case ok && live && !w.isDoomed(o.UID):
		return o, nil
	case !ok && w.made.synced():
		return nil, nil //nolint:nilnil // there is none
	}
	o, err := w.get(ctx)
	if last := w.lately(); err != nil && last != nil && flex.CodeOf(err) == flex.CodeUnavailable {
		return last, nil
	}
	return o, err
}

// get requests the attachment; nil if there is none.
func (w *wait) get(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	o, err := get(ctx, w.cluster.storage.VolumeAttachments(), w.name)
	if o, err = orNone(o, err, "look for VolumeAttachment "+w.name+" of volume "+aboutVolume(w.want)); o != nil {
		w.notice(o)
	}
	return o, err
}

// notice starts an informer for an attachment that is not ours.
func (w *wait) notice(o *storagev1.VolumeAttachment) {
	if !attachment.Managed(o) && w.watched(w.name) == nil {
		f := w.watchUnmanaged(w.name)
		w.stop = append(w.stop, f.informer.notifier.listen(w.name, w.news))
	}
}

// An object that no informer has is requested after firstLook, and then with growing
// pauses.
const (
	firstLook = 3 * time.Second
	maxLook   = 10 * time.Second
)

// follow calls look with each state of an attachment until look returns true. The last
// state is nil if it was deleted.
func (w *wait) follow(ctx context.Context, o *storagev1.VolumeAttachment, look func(*storagev1.VolumeAttachment) (enough bool)) error {
	pause := firstLook
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		now, live := w.latest(o)
		if now == nil {
			w.vanish(o)
		}
		if look(now) || now == nil {
			return nil
		}
		o = now
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.news.news:
			continue
		case <-timer.C:
		}
		pause = min(2*pause, maxLook)
		timer.Reset(pause)
		if live {
			continue
		}
		// Ignore errors: the API server may be available again in time.
		if got, err := w.get(ctx); err == nil {
			if got == nil || got.UID != o.UID {
				w.vanish(o)
				look(nil)
				return nil
			}
			o = got
		}
	}
}

// latest returns the newest known state of an object, nil if it was deleted. live: an
// informer has it and notifies of changes.
func (w *wait) latest(o *storagev1.VolumeAttachment) (now *storagev1.VolumeAttachment, live bool) {
	if w.news.isGone(o.UID) {
		return nil, true
	}
	c, ok, live := w.cached()
	if !ok || c.UID != o.UID {
		return o, false
	}
	if older, err := resourceversion.CompareResourceVersion(c.ResourceVersion, o.ResourceVersion); err == nil && older < 0 {
		return o, live
	}
	return c, live
}

// soon returns a context that ends before ctx, to leave time for a message.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/5, 2*time.Second)))
}

// untilAttached waits until the attachment is attached; errVanished if that will never
// happen.
func (w *wait) untilAttached(ctx context.Context, o *storagev1.VolumeAttachment) (csivol.Attached, error) {
	early, cancel := soon(ctx)
	defer cancel()
	told := false
	err := w.follow(early, o, func(now *storagev1.VolumeAttachment) bool {
		o = now
		if now == nil || now.DeletionTimestamp != nil || now.Status.Attached {
			return true
		}
		if now.Status.AttachError != nil && !told {
			told = true
			w.report(ctx, now)
		}
		return false
	})
	switch {
	case err != nil:
		return csivol.Attached{}, w.unfinished(ctx, o)
	case o == nil || o.DeletionTimestamp != nil:
		return csivol.Attached{}, errVanished
	}
	got := csivol.Attached{Object: o.Name, PublishContext: o.Status.AttachmentMetadata, Ours: w.ours(o)}
	if got.Ours {
		got.Name = o.Annotations[attachment.PersistentVolumeAnnotation]
	}
	return got, nil
}

// untilGone waits until an attachment was deleted. It confirms what the watch says: the
// labels that the watch selects may have been removed.
func (w *wait) untilGone(ctx context.Context, o *storagev1.VolumeAttachment) error {
	early, cancel := soon(ctx)
	defer cancel()
	uid := o.UID
	err := w.follow(early, o, func(now *storagev1.VolumeAttachment) bool {
		if now != nil {
			o = now
		}
		return now == nil
	})
	if err != nil {
		return w.undeleted(o)
	}
	left, err := w.get(ctx)
	switch {
	case err != nil:
		return err
	case left == nil || left.UID != uid:
		return nil
	}
	return flex.Errorf(flex.CodeAborted, "VolumeAttachment %s of volume %s is being deleted, and is not flex2csi's any more: its labels were changed", w.name, aboutVolume(w.want))
}

// untilThere waits for an attachment of another component.
func (w *wait) untilThere(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	early, cancel := soon(ctx)
	defer cancel()
	pause := firstLook
	timer := time.NewTimer(0)
	defer timer.Stop()
	err := error(errNotSeen)
	for {
		if o, ok, live := w.cached(); ok && live && !w.news.isGone(o.UID) {
			return o, nil
		}
		select {
		case <-early.Done():
			return nil, err
		case <-w.news.news:
			continue
		case <-timer.C:
		}
		timer.Reset(pause)
		pause = min(2*pause, maxLook)
		o, now := w.get(early)
		if seen := w.lately(); now != nil && seen != nil && flex.CodeOf(now) == flex.CodeUnavailable {
			return seen, nil
		}
		switch {
		case o != nil:
			return o, nil
		case now == nil:
			err = flex.Errorf(flex.CodeDeadlineExceeded, "volume %s: there is no VolumeAttachment %s, which flex2csi controller creates for kube-controller-manager; check its log", aboutVolume(w.want), w.name)
		case early.Err() == nil:
			err = now
		}
	}
}
