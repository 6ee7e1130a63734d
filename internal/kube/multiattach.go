package kube

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/shared"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// isExclusive reports whether the volume may be on one node only, as the control plane
// decides it (pkg/volume/util/util.go, IsMultiAttachAllowed, Kubernetes v1.37.1).
func isExclusive(a *csivol.Attachment) bool {
	return !slices.ContainsFunc(a.AccessModes, func(m csivol.AccessMode) bool {
		return m == csivol.ReadWriteMany || m == csivol.ReadOnlyMany
	})
}

// waitFree returns nil when no other node has the volume. It waits for attachments that are
// being deleted, and for no others.
func (op *operation) waitFree(ctx context.Context) error {
	early, cancel := soon(ctx)
	defer cancel()
	for pause := time.Second; ; pause = min(2*pause, 5*time.Second) {
		live, leaving, err := op.listOthers(ctx)
		switch {
		case err != nil:
			return err
		case len(live) > 0:
			return op.notifyConflict(live[0])
		case len(leaving) == 0:
			return nil
		}
		select {
		case <-time.After(pause):
		case <-early.Done():
			return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is still being detached from node %s (VolumeAttachment %s)%s; it can come to node %s after that",
				aboutVolume(op.want), leaving[0].Spec.NodeName, leaving[0].Name, detachTrouble(leaving[0]), op.want.Node)
		}
	}
}

func detachTrouble(o *storagev1.VolumeAttachment) string {
	if e := o.Status.DetachError; e != nil {
		return ", which failed: " + clipText(objects.AttachmentErrorText(e))
	}
	return ""
}

func (op *operation) conflict(other *storagev1.VolumeAttachment) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "multi-attach: volume %s is attached to node %s (VolumeAttachment %s), and access mode %s allows one node; it can come to node %s when the pods that use it there are gone",
		aboutVolume(op.want), other.Spec.NodeName, other.Name, op.want.AccessModes[0], op.want.Node)
}

// notifyConflict returns the error, and makes an event of it.
func (op *operation) notifyConflict(other *storagev1.VolumeAttachment) error {
	err := op.conflict(other)
	op.notify(err.Error())
	return err
}

// attachExclusive attaches a volume that may be on one node only. Two nodes may have created
// an attachment each, because both saw none. So each node checks again after the
// creation, and attaches only if there is no other. The node that comes later in the
// order deletes its attachment. The first one waits a while for that: the other may
// have checked before ours existed, and then it stays and ours is deleted.
func (op *operation) attachExclusive(ctx context.Context, o *storagev1.VolumeAttachment, created bool) (csivol.Attached, error) {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var conflict, checkErr error
	checked := make(chan struct{})
	go func() {
		defer close(checked)
		if conflict, checkErr = op.checkAlone(waiting, o); conflict != nil || checkErr != nil {
			stop()
		}
	}()
	attached, err := op.waitAttached(waiting, o)
	if err != nil {
		stop()
	}
	<-checked
	switch {
	case conflict == nil && checkErr == nil:
		op.exclusive.Store(o.UID, true)
		return attached, err
	case conflict == nil:
		return csivol.Attached{}, cmp.Or(err, checkErr)
	case !created:
		return csivol.Attached{}, conflict // from an earlier try; it may be in use
	}
	if err := op.remove(ctx, o); err != nil {
		return csivol.Attached{}, flex.Errorf(flex.CodeFailedPrecondition, "%w; the attachment to node %s is being taken back: %w", conflict, op.want.Node, err)
	}
	return csivol.Attached{}, notBegun{conflict}
}

// firstWait is how long the first node waits for the others.
const firstWait = 2 * time.Second

// checkAlone returns nil when no other node has the volume, or the conflict. It tolerates a
// short outage of the API server.
func (op *operation) checkAlone(ctx context.Context, o *storagev1.VolumeAttachment) (conflict, err error) {
	begun := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		live, _, err := op.listOthers(ctx)
		isLater := slices.ContainsFunc(live, func(other *storagev1.VolumeAttachment) bool { return isBefore(other, o) })
		switch {
		case err == nil && len(live) == 0:
			return nil, nil
		case err == nil && (isLater || time.Since(begun) > firstWait):
			return op.notifyConflict(live[0]), nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if err != nil {
				return nil, err
			}
			return op.conflict(live[0]), nil
		}
	}
}

// isBefore is an order of attachments that is the same on all nodes.
func isBefore(a, b *storagev1.VolumeAttachment) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// listOthers asks which other nodes have the volume, or will have it. Of flex2csi's
// attachments the answer has all that was written before the call. Those of other
// components are from an informer, if that is up to date: they do not check ours.
func (op *operation) listOthers(ctx context.Context) (live, leaving []*storagev1.VolumeAttachment, err error) {
	volume, e := objects.VolumeID(op.want.Driver, op.want.Handle), &op.cluster.everywhere
	e.ask(volume, 1)
	defer e.ask(volume, -1)
	managed, err := e.managed.Get(ctx, op.cluster.listManaged)
	unmanaged := op.watchElsewhere()
	others := cache.Indexer(nil)
	if err == nil && unmanaged.isSettled() {
		others = unmanaged.GetIndexer()
	} else if err == nil {
		others, err = e.unmanaged.Get(ctx, op.cluster.listUnmanaged)
	}
	if err != nil {
		return nil, nil, flex.Errorf(flex.CodeOf(err), "ask which nodes have volume %s: %w", aboutVolume(op.want), err)
	}
	for _, all := range []cache.Indexer{managed, others} {
		for _, o := range findOthers(all, op.want) {
			if o.DeletionTimestamp != nil {
				leaving = append(leaving, o)
			} else {
				live = append(live, o)
			}
		}
	}
	return live, leaving, nil
}

// byPlace indexes attachments by CSI driver and node. With a node the name of an attachment
// is known: a hash of volume and node.
const byPlace = "place"

func indexByPlace() cache.Indexers {
	return cache.Indexers{byPlace: func(o any) ([]string, error) {
		if o, ok := o.(*storagev1.VolumeAttachment); ok {
			return []string{o.Spec.Attacher + "/" + o.Spec.NodeName}, nil
		}
		return nil, nil
	}}
}

// findOthers returns the attachments of a volume to nodes other than the wanted one.
func findOthers(all cache.Indexer, want *csivol.Attachment) (others []*storagev1.VolumeAttachment) {
	for _, place := range all.ListIndexFuncValues(byPlace) {
		node, ofDriver := strings.CutPrefix(place, want.Driver+"/")
		if !ofDriver || node == want.Node {
			continue
		}
		known, _, _ := all.GetByKey(objects.AttachmentName(want.Handle, want.Driver, node)) // of memory, without an error
		if o, ok := known.(*storagev1.VolumeAttachment); ok && o.Spec.NodeName == node && o.Spec.Attacher == want.Driver {
			others = append(others, o)
		}
	}
	return others
}

// trimElsewhere keeps what identifies an attachment to another node.
func trimElsewhere(o *storagev1.VolumeAttachment) {
	o.ObjectMeta = metav1.ObjectMeta{
		Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp,
	}
	o.Spec.Source = storagev1.VolumeAttachmentSource{}
	o.Status = storagev1.VolumeAttachmentStatus{DetachError: o.Status.DetachError}
}

// unlabeled selects the attachments that flex2csi has not made: those of the control
// plane, and those that a rollback puts in their place.
const unlabeled = "!" + objects.VolumeLabel

// watchElsewhere returns the informer of all attachments that flex2csi has not made.
func (a *Attachments) watchElsewhere() *informer {
	return a.use(unlabeled, func() *informer {
		return newInformer(a.cluster.storage.VolumeAttachments(), metav1.ListOptions{LabelSelector: unlabeled}, &storagev1.VolumeAttachment{}, indexByPlace(), trimElsewhere)
	})
}

// everywhere says which nodes have a volume. The lists have no resourceVersion: they are
// consistent. Concurrent callers share them.
type everywhere struct {
	managed, unmanaged shared.Answer[cache.Indexer]

	mu    sync.Mutex
	asked map[string]int // callers, by the label of their volume
}

func (e *everywhere) ask(volume string, callers int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asked == nil {
		e.asked = map[string]int{}
	}
	if e.asked[volume] += callers; e.asked[volume] == 0 {
		delete(e.asked, volume)
	}
}

// volumesInRequest bounds the length of a URL: a proxy in front of the API server may
// accept no more than 8 KiB.
const volumesInRequest = 100

// listManaged lists flex2csi's attachments of the volumes that callers ask for. The answer
// does not grow with the cluster. It has no limit, which the API server would read from
// etcd (k8s.io/apiserver/pkg/storage/cacher/delegator.go, Kubernetes v1.31).
func (c *Cluster) listManaged(ctx context.Context) (cache.Indexer, error) {
	c.everywhere.mu.Lock()
	volumes := slices.Sorted(maps.Keys(c.everywhere.asked))
	c.everywhere.mu.Unlock()
	all := newPlaces()
	for some := range slices.Chunk(volumes, volumesInRequest) {
		selected := metav1.ListOptions{LabelSelector: objects.VolumeLabel + " in (" + strings.Join(some, ",") + ")"}
		list, err := request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachmentList, error) {
			return c.storage.VolumeAttachments().List(ctx, selected)
		})
		if err != nil {
			return nil, wrapError(err, "list VolumeAttachments")
		}
		for i := range list.Items {
			addPlace(all, &list.Items[i])
		}
	}
	return all, nil
}

func (c *Cluster) listUnmanaged(ctx context.Context) (cache.Indexer, error) {
	all := newPlaces()
	return all, listEach(ctx, "list VolumeAttachments", metav1.ListOptions{LabelSelector: unlabeled}, c.storage.VolumeAttachments().List, func(o *storagev1.VolumeAttachment) { addPlace(all, o) })
}

func newPlaces() cache.Indexer { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexByPlace()) }

func addPlace(all cache.Indexer, o *storagev1.VolumeAttachment) {
	trimElsewhere(o)
	_ = all.Add(o) // it has a name
}
