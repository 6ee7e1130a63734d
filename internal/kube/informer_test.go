package kube

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/attachment"
)

// TestWatchEnds: between the end of a watch and the start of the next one another object may
// have taken the place of the one in the cache, with another publish context.
func TestWatchEnds(t *testing.T) {
	was := ofFlex(on("node-1"), attachment.AttachedByNode)
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
