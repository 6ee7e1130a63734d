package kube

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// exclusive reports whether the volume may be on one node only, as the control plane
// decides it (pkg/volume/util/util.go, IsMultiAttachAllowed, Kubernetes v1.37.1).
func exclusive(a *csivol.Attachment) bool {
	return !slices.ContainsFunc(a.AccessModes, func(m csivol.AccessMode) bool {
		return m == csivol.ReadWriteMany || m == csivol.ReadOnlyMany
	})
}

// others asks which other nodes have the volume, or will have it. Of flex2csi's
// attachments the answer has all that was written before the call. Those of other
// components are from an informer, if that is up to date: they do not check ours.
func (w *wait) others(ctx context.Context) (live, leaving []storagev1.VolumeAttachment, err error) {
	volume, e := attachment.VolumeID(w.want.Driver, w.want.Handle), &w.cluster.everywhere
	e.ask(volume, 1)
	defer e.ask(volume, -1)
	ours, err := e.ours.Get(ctx, w.cluster.listOurs)
	var theirLive, theirLeaving []storagev1.VolumeAttachment
	if known := w.watchElsewhere(); err == nil && known.informer.settled() {
		theirLive, theirLeaving = known.others(w.want, known.informer.get)
	} else if err == nil {
		var all *census
		if all, err = e.others.Get(ctx, w.cluster.listOthers); err == nil {
			theirLive, theirLeaving = all.others(w.want)
		}
	}
	if err != nil {
		return nil, nil, flex.Errorf(flex.CodeOf(err), "ask which nodes have volume %s: %w", aboutVolume(w.want), err)
	}
	live, leaving = ours.others(w.want)
	return append(live, theirLive...), append(leaving, theirLeaving...), nil
}

// free returns nil when no other node has the volume. It waits for attachments that are
// being deleted, and for no others.
func (w *wait) free(ctx context.Context) error {
	early, cancel := soon(ctx)
	defer cancel()
	for pause := time.Second; ; pause = min(2*pause, 5*time.Second) {
		live, leaving, err := w.others(ctx)
		switch {
		case err != nil:
			return err
		case len(live) > 0:
			return w.elsewhere(live[0])
		case len(leaving) == 0:
			return nil
		}
		select {
		case <-time.After(pause):
		case <-early.Done():
			return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still being detached from node %s (VolumeAttachment %s)%s; it can come to node %s after that",
				aboutVolume(w.want), leaving[0].Spec.NodeName, leaving[0].Name, detachTrouble(&leaving[0]), w.want.Node)
		}
	}
}

func detachTrouble(o *storagev1.VolumeAttachment) string {
	if e := o.Status.DetachError; e != nil {
		return ", which failed: " + clip(attachment.ErrorText(e))
	}
	return ""
}

// multiAttach is the error for a volume that another node has.
type multiAttach struct{ error }

func (e multiAttach) Unwrap() error { return e.error }

func (w *wait) conflict(other storagev1.VolumeAttachment) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "multi-attach: volume %s is attached to node %s (VolumeAttachment %s), and access mode %s allows one node; it can come to node %s when the pods that use it there are gone",
		aboutVolume(w.want), other.Spec.NodeName, other.Name, w.want.AccessModes[0], w.want.Node)
}

// elsewhere returns the error, and makes an event of it.
func (w *wait) elsewhere(other storagev1.VolumeAttachment) error {
	err := w.conflict(other)
	w.tell(err.Error())
	return multiAttach{err}
}

// alone is settle for a volume that may be on one node only. Two nodes may have created
// an attachment each, because both saw none. So each node checks again after the
// creation, and attaches only if there is no other. The node that comes later in the
// order deletes its attachment. The first one waits a while for that: the other may
// have checked before ours existed, and then it stays and ours is deleted.
func (w *wait) alone(ctx context.Context, o *storagev1.VolumeAttachment, created bool) (csivol.Attached, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	check := make(chan error, 1)
	go func() {
		err := w.onlyOne(waiting, o)
		if err != nil {
			stop()
		}
		check <- err
	}()
	attached, err := w.untilAttached(waiting, o)
	if err != nil {
		stop()
	}
	result := <-check
	if _, found := errors.AsType[multiAttach](result); !found {
		if result == nil {
			w.setSingle(o)
		}
		return attached, cmp.Or(err, result)
	}
	if !created {
		return csivol.Attached{}, result // from an earlier try; it may be in use
	}
	if err := w.remove(ctx, o); err != nil {
		return csivol.Attached{}, flex.Errorf(flex.CodeFailedPrecondition, "%w; the attachment to node %s is being taken back: %w", result, w.want.Node, err)
	}
	return csivol.Attached{}, notBegun{result}
}

// yield is how long the first node waits for the others.
const yield = 2 * time.Second

// onlyOne returns nil when no other node has the volume. It tolerates a short outage of
// the API server.
func (w *wait) onlyOne(ctx context.Context, o *storagev1.VolumeAttachment) error {
	begun := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		live, _, err := w.others(ctx)
		if err == nil && len(live) == 0 {
			return nil
		}
		if err == nil && (slices.ContainsFunc(live, func(other storagev1.VolumeAttachment) bool { return before(&other, o) }) || time.Since(begun) > yield) {
			return w.elsewhere(live[0])
		}
		if err == nil {
			err = multiAttach{w.conflict(live[0])}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// before is an order of attachments that is the same on all nodes.
func before(a, b *storagev1.VolumeAttachment) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

func (a *Attachments) isSingle(o *storagev1.VolumeAttachment) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.single[o.UID]
}

func (a *Attachments) setSingle(o *storagev1.VolumeAttachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.single[o.UID] = true
}
