package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// late is an informer that gets an event just after it was asked for the object.
type late struct {
	cache.SharedIndexInformer
	event func()
}

func (l *late) GetStore() cache.Store {
	if f := l.event; f != nil {
		l.event = nil
		f()
	}
	return l.SharedIndexInformer.GetStore()
}

// TestCachedRace: the informer gets to know an object while it is asked for it.
func TestCachedRace(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		o := ofFlex(on("node-1"), objects.AttachedByNode)
		o.UID, o.ResourceVersion, s.version = "new", "11", 10
		a.managed.SharedIndexInformer = &late{a.managed.SharedIndexInformer, func() {
			s.put(o.DeepCopy())
			synctest.Wait()
		}}
		op := &operation{Attachments: a, want: on("node-1"), name: o.Name}
		if now, _ := op.cached(o); now == nil {
			t.Error("it was just created, and counts as deleted")
		}
	})
}

// TestAttachRace: so that a conflict leaves the new VolumeAttachment behind.
func TestAttachRace(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		var created *storagev1.VolumeAttachment
		s.PrependReactor("create", "volumeattachments", func(action k8stesting.Action) (bool, runtime.Object, error) {
			if created != nil {
				return false, nil, nil
			}
			other := ofFlex(on("node-2"), objects.AttachedByNode)
			other.UID, other.CreationTimestamp = "other", metav1.NewTime(time.Now().Add(-time.Second))
			s.put(other)
			s.fail("list volumeattachments", errors.New("canceled"))
			created = action.(k8stesting.CreateAction).GetObject().(*storagev1.VolumeAttachment).DeepCopy()
			created.UID, created.CreationTimestamp = types.UID("ours"), metav1.Now()
			created.ResourceVersion = "2"
			return true, created, nil
		})
		a.managed.SharedIndexInformer = &late{a.managed.SharedIndexInformer, func() {
			s.put(created.DeepCopy())
			synctest.Wait()
		}}
		_, err := a.Attach(t.Context(), on("node-1"))
		if !errors.Is(err, csivol.ErrNotBegun) || len(s.nodes()) != 1 {
			t.Errorf("left: %v, not begun: %t, %v", s.nodes(), errors.Is(err, csivol.ErrNotBegun), err)
		}
	})
}

// TestAwaitDeletedSince: an answer of the API server that comes after the watch has said that
// the object is deleted.
func TestAwaitDeletedSince(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		gets := 0
		s.PrependReactor("get", "volumeattachments", func(k8stesting.Action) (bool, runtime.Object, error) {
			if gets++; gets != 2 {
				return false, nil, nil
			}
			o := ofFlex(on("node-1"), objects.AttachedByController)
			o.UID, o.ResourceVersion = "gone", "1"
			return true, o, nil
		})
		other := on("node-1")
		other.Handle = "other"
		s.mu.Lock()
		s.version = 10
		s.mu.Unlock()
		s.put(ofFlex(other, objects.AttachedByController)) // the informer is newer than the answer
		synctest.Wait()
		ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
		defer end()
		if _, err := a.Await(ctx, on("node-1")); flex.CodeOf(err) != flex.CodeDeadlineExceeded || gets < 3 {
			t.Errorf("after %d requests: %v", gets, err)
		}
	})
}

// TestAwaitAway: what the API server said last counts, or that it says nothing.
func TestAwaitAway(t *testing.T) {
	for _, failsFirst := range []bool{false, true} {
		inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
			a := daemon(c, "node-1")
			gets := 0
			s.PrependReactor("get", "volumeattachments", func(k8stesting.Action) (bool, runtime.Object, error) {
				if gets++; (gets == 1) == failsFirst {
					return true, nil, apierrors.NewServiceUnavailable("away")
				}
				return false, nil, nil
			})
			ctx, end := context.WithTimeout(t.Context(), 60*time.Second)
			defer end()
			_, err := a.Await(ctx, on("node-1"))
			if isNone := strings.Contains(err.Error(), "there is no VolumeAttachment"); isNone != failsFirst {
				t.Errorf("the first request fails: %t; after %d: %v", failsFirst, gets, err)
			}
		})
	}
}
