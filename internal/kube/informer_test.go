package kube

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestWatchEnds: between the end of a watch and the start of the next one another object may
// have taken the place of the one in the cache, with another publish context.
func TestWatchEnds(t *testing.T) {
	was := ofFlex(on("node-1"), objects.AttachedByNode)
	was.Status.AttachmentMetadata = map[string]string{"device": "old"}
	inCluster(t, []runtime.Object{was}, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		_, _ = a.Lost(on("node-1"))
		synctest.Wait()
		attached, err := a.Attach(t.Context(), on("node-1"))
		if err != nil || attached.PublishContext["device"] != "old" {
			t.Fatalf("got %+v, %v", attached, err)
		}
		s.cut()
		synctest.Wait()
		now := was.DeepCopy()
		now.UID, now.Status = "another", storagev1.VolumeAttachmentStatus{}
		s.identify(now)
		if err := s.Tracker().Update(attachmentKind, now, ""); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if attached, err := a.Attach(ctx, on("node-1")); err == nil {
			t.Errorf("it is not attached, and got %+v", attached)
		}
	})
}

// TestWatchSilent: a connection that is dead says nothing, and is not up to date for that.
func TestWatchSilent(t *testing.T) {
	was := ofFlex(on("node-1"), objects.AttachedByNode)
	inCluster(t, []runtime.Object{was}, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		time.Sleep(5 * time.Minute) // with bookmarks it is
		if _, err := a.Attach(t.Context(), on("node-1")); err != nil || !a.managed.isLive() {
			t.Errorf("live: %t, %v", a.managed.isLive(), err)
		}
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
		now := was.DeepCopy()
		now.UID, now.Status = "another", storagev1.VolumeAttachmentStatus{}
		s.identify(now)
		if err := s.Tracker().Update(attachmentKind, now, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if attached, err := a.Attach(ctx, on("node-1")); err == nil {
			t.Errorf("it is not attached, and got %+v", attached)
		}
		if lost, err := a.Lost(on("node-1")); err == nil && lost {
			t.Error("it is lost")
		}
	})
}

// TestLostBehind: what was attached after the end of a watch is not lost because the cache does not
// have it, which the fake never makes up for. A mount failed for that, and the volume was detached and
// attached again.
func TestLostBehind(t *testing.T) {
	inCluster(t, nil, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		for range 2 { // its informers start with the question
			_, _ = a.Lost(on("node-1"))
			synctest.Wait()
		}
		if lost, err := a.Lost(on("node-1")); err != nil || !lost {
			t.Fatalf("there is none: lost %t, %v", lost, err)
		}
		s.cut()
		synctest.Wait()
		if err := s.Tracker().Create(attachmentKind, ofFlex(on("node-1"), objects.AttachedByNode), ""); err != nil {
			t.Fatal(err)
		}
		if lost, err := a.Lost(on("node-1")); err == nil {
			t.Errorf("it may have been created since: lost %t", lost)
		}
		time.Sleep(time.Minute)
		if lost, err := a.Lost(on("node-1")); err != nil || lost {
			t.Errorf("with another watch: lost %t, %v", lost, err)
		}
	})
}
