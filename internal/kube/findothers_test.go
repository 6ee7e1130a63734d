package kube

import (
	"fmt"
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestFindOthers: the name of an attachment, of whichever maker, says of what it is.
func TestFindOthers(t *testing.T) {
	all := newPlaces()
	add := func(name, driver, node string, deleted *metav1.Time) {
		addPlace(all, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: node},
		})
	}
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		add(objects.AttachmentName("other", "d", node), "d", node, nil)
	}
	add(objects.AttachmentName("h", "d", "node-1"), "d", "node-1", nil)
	add(objects.AttachmentName("h", "d", "node-2"), "d", "node-2", nil)
	add(objects.AttachmentName("h", "d", "node-3"), "d", "node-3", &metav1.Time{Time: time.Now()})
	add(objects.AttachmentName("h", "e", "node-4"), "e", "node-4", nil)     // of another driver
	add(objects.AttachmentName("h", "d", "node-5"), "d", "node-1", nil)     // a name that is taken
	add(objects.AttachmentName("other", "d", "node-5"), "d", "node-5", nil) // with a known place
	var live, leaving []string
	for _, o := range findOthers(all, &csivol.Attachment{Driver: "d", Handle: "h", Node: "node-1"}) {
		if o.DeletionTimestamp != nil {
			leaving = append(leaving, o.Spec.NodeName)
		} else {
			live = append(live, o.Spec.NodeName)
		}
	}
	if !slices.Equal(live, []string{"node-2"}) || !slices.Equal(leaving, []string{"node-3"}) {
		t.Errorf("live on %v, leaving %v", live, leaving)
	}
	if others := findOthers(newPlaces(), &csivol.Attachment{Driver: "d", Handle: "h"}); len(others) > 0 {
		t.Errorf("nothing is there, and %v", others)
	}
}

// BenchmarkFindOthers is what a node does with the attachments of a large cluster when
// it gets two hundred pods at once.
func BenchmarkFindOthers(b *testing.B) {
	var all []storagev1.VolumeAttachment
	for i := range 10000 {
		node := fmt.Sprintf("node-%d", i%1000)
		all = append(all, storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: objects.AttachmentName(fmt.Sprintf("handle-%d", i), "d", node)},
			Spec:       storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: node},
		})
	}
	for b.Loop() {
		places := newPlaces()
		for i := range all {
			addPlace(places, &all[i])
		}
		for i := range 200 {
			others := findOthers(places, &csivol.Attachment{Driver: "d", Handle: fmt.Sprintf("handle-%d", i), Node: "node-new"})
			if !slices.ContainsFunc(others, func(o *storagev1.VolumeAttachment) bool { return o.Spec.NodeName == fmt.Sprintf("node-%d", i) }) {
				b.Fatal("not found")
			}
		}
	}
}
