package kube

import (
	"context"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A wait is one operation on one attachment. It hears of what becomes of it
// from its beginning on, so that nothing is missed in between.
type wait struct {
	*Attachments
	want *csivol.Attachment
	name string
	news *listener
	stop []func()
}

func (a *Attachments) wait(want *csivol.Attachment) *wait {
	w := &wait{Attachments: a, want: want, name: attachment.Name(want.Handle, want.Driver, want.Node), news: newListener()}
	w.stop = append(w.stop, a.made.bells.listen(w.name, w.news))
	if f := a.watched(w.name); f != nil {
		w.stop = append(w.stop, f.mirror.bells.listen(w.name, w.news))
	}
	return w
}

func (w *wait) end() {
	for _, stop := range w.stop {
		stop()
	}
}

// cached is the attachment as a mirror shows it, and whether that mirror hears of
// news.
func (w *wait) cached() (o *storagev1.VolumeAttachment, ok, live bool) {
	if o, ok := w.made.get(w.name); ok {
		return o, true, w.made.live.Load()
	}
	if f := w.watched(w.name); f != nil {
		o, ok := f.mirror.get(w.name)
		return o, ok, f.mirror.live.Load()
	}
	return nil, false, false
}

// lately is the attachment as a mirror showed it a moment ago, nil if none did.
func (w *wait) lately() *storagev1.VolumeAttachment {
	m := w.made
	o, ok := m.get(w.name)
	if f := w.watched(w.name); !ok && f != nil {
		m = f.mirror
		o, ok = m.get(w.name)
	}
	if !ok || !m.lately() || w.isDoomed(o.UID) || w.news.isGone(o.UID) {
		return nil
	}
	return o
}

// known is the attachment as far as it is known; nil if there is none, but that
// may be wrong by a moment. It is asked for only if no mirror can tell: while the
// watch is broken another one may have taken its place, with another publish
// context. If the API server is away just now, what was last seen holds.
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

// get asks for the attachment; nil if there is none.
func (w *wait) get(ctx context.Context) (*storagev1.VolumeAttachment, error) {
	o, err := request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return w.cluster.storage.VolumeAttachments().Get(ctx, w.name, metav1.GetOptions{})
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, failed(err, "look for VolumeAttachment "+w.name+" of volume "+aboutVolume(w.want))
	}
	w.notice(o)
	return o, nil
}

// notice has what is not in the mirror of ours watched by itself.
func (w *wait) notice(o *storagev1.VolumeAttachment) {
	if !attachment.Managed(o) && w.watched(w.name) == nil {
		f := w.foreigner(w.name)
		w.stop = append(w.stop, f.mirror.bells.listen(w.name, w.news))
	}
}

// Where a mirror has not shown an object, for whatever reason, it is asked for
// after firstLook, and then more and more seldom.
const (
	firstLook = 3 * time.Second
	maxLook   = 10 * time.Second
)

// follow calls look with each state of an attachment until that has seen enough.
// Nil is the last one: it is gone.
func (w *wait) follow(ctx context.Context, o *storagev1.VolumeAttachment, look func(*storagev1.VolumeAttachment) (enough bool)) error {
	pause := firstLook
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		now, mirrored := w.latest(o)
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
		if mirrored {
			continue
		}
		// An error here is that of the API server, which may come back in time.
		if got, err := w.get(ctx); err == nil {
			if got == nil || got.UID != o.UID {
				look(nil)
				return nil
			}
			o = got
		}
	}
}

// latest is the newest that is known of an object, nil if it is gone; mirrored
// if a mirror has it and will tell of changes.
func (w *wait) latest(o *storagev1.VolumeAttachment) (now *storagev1.VolumeAttachment, mirrored bool) {
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

// soon ends before ctx, so that there is time to tell why.
func soon(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/5, 2*time.Second)))
}

// untilAttached waits until the attachment is one, or until it is clear that
// this one never will be: errVanished.
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

// untilGone waits until an attachment that is being deleted is not there any
// more. What the watch says is confirmed: the marks by which it was found may
// have been taken off.
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

// untilThere waits for an attachment that somebody else makes.
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
			err = flex.Errorf(flex.CodeDeadlineExceeded, "volume %s: there is no VolumeAttachment %s, which kube-controller-manager has made through flex2csi controller; look whether that runs, and at its log", aboutVolume(w.want), w.name)
		case early.Err() == nil:
			err = now
		}
	}
}
