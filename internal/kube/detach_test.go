package kube

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// csiPV is the volume after its migration, with a claim that the pod uses.
func csiPV() []runtime.Object {
	return []runtime.Object{
		&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}},
				ClaimRef:               &corev1.ObjectReference{Namespace: "shop", Name: "data"},
			},
		},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app"},
			Spec: corev1.PodSpec{NodeName: "node-1", Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}},
		},
	}
}

// TestDetach: only what this daemon has made, and no other component uses, is deleted. Without
// one of these conditions the unit tests of the package passed.
func TestDetach(t *testing.T) {
	unique := objects.CSIVolumeName("d", "h")
	inUse := nodeObject("node-1")
	inUse.Status.VolumesInUse = []corev1.UniqueVolumeName{unique}
	imitated := ofFlex(on("node-1"), objects.AttachedByNode)
	imitated.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = "of another tenant"
	byNode := func() runtime.Object { return ofFlex(on("node-1"), objects.AttachedByNode) }
	for name, tt := range map[string]struct {
		there   []runtime.Object
		deletes bool
	}{
		"ours":                               {[]runtime.Object{byNode(), nodeObject("node-1")}, true},
		"ours, and the Node is gone":         {[]runtime.Object{byNode()}, true},
		"the controller's":                   {[]runtime.Object{ofFlex(on("node-1"), objects.AttachedByController), nodeObject("node-1")}, false},
		"the control plane's":                {[]runtime.Object{ofCSI(on("node-1")), nodeObject("node-1")}, false},
		"adopted: attached as a CSI volume":  {[]runtime.Object{byNode(), nodeObject("node-1", unique)}, false},
		"adopted: in use as a CSI volume":    {[]runtime.Object{byNode(), inUse}, false},
		"about to be: a pod uses the CSI PV": {append(csiPV(), byNode(), nodeObject("node-1")), false},
		"no pod uses the CSI PV":             {append(csiPV()[:1], byNode(), nodeObject("node-1")), true},
		"the name, but of another volume":    {[]runtime.Object{imitated, nodeObject("node-1")}, false},
		"of another node, and this has none": {[]runtime.Object{ofFlex(on("node-2"), objects.AttachedByNode), nodeObject("node-1")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, tt.there, func(t *testing.T, s *apiServer, c *Cluster) {
				a := daemon(c, "node-1")
				if err := a.Detach(t.Context(), on("node-1")); err != nil {
					t.Error(err)
				}
				if got := s.changes(); (got == "delete") != tt.deletes || !tt.deletes && got != "" {
					t.Errorf("requests %q, want a deletion: %t", got, tt.deletes)
				}
			})
		})
	}
}

// TestDetachUnknown: while a question has no answer nothing is deleted, and the detach has
// not succeeded.
func TestDetachUnknown(t *testing.T) {
	for _, request := range []string{"get volumeattachments", "get nodes", "get persistentvolumes", "list pods", "delete volumeattachments"} {
		t.Run(request, func(t *testing.T) {
			there := append(csiPV(), ofFlex(on("node-1"), objects.AttachedByNode), nodeObject("node-1"))
			there[1].(*corev1.Pod).Status.Phase = corev1.PodSucceeded
			inCluster(t, there, func(t *testing.T, s *apiServer, c *Cluster) {
				a := daemon(c, "node-1")
				s.fail(request, errors.New("no answer"))
				if err := a.Detach(t.Context(), on("node-1")); err == nil {
					t.Error("success")
				}
				if request != "get volumeattachments" && len(s.nodes()) != 1 { // that confirms the deletion
					t.Error("it was deleted")
				}
				if err := a.Detach(t.Context(), on("node-1")); err != nil || len(s.nodes()) != 0 {
					t.Errorf("the next try: %v, left %v", err, s.nodes())
				}
			})
		})
	}
}

// TestDetachReplaced: the VolumeAttachment that a watch showed was replaced by one that a
// pod uses, perhaps.
func TestDetachReplaced(t *testing.T) {
	inCluster(t, []runtime.Object{ofFlex(on("node-1"), objects.AttachedByNode), nodeObject("node-1")}, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		synctest.Wait()
		s.when("get nodes", func() {
			s.drop(objectName(on("node-1")))
			s.put(ofFlex(on("node-1"), objects.AttachedByNode))
		})
		if err := a.Detach(t.Context(), on("node-1")); err == nil {
			t.Error("success")
		}
		if got := s.nodes(); len(got) != 1 {
			t.Error("the new one was deleted")
		}
	})
}

// TestDetachWaits: Success means that the external-attacher has finished.
func TestDetachWaits(t *testing.T) {
	o := ofFlex(on("node-1"), objects.AttachedByNode)
	o.Finalizers = []string{"external-attacher/d"}
	inCluster(t, []runtime.Object{o, nodeObject("node-1")}, func(t *testing.T, s *apiServer, c *Cluster) {
		a := daemon(c, "node-1")
		time.AfterFunc(30*time.Second, func() { s.drop(o.Name) })
		begun := time.Now()
		if err := a.Detach(t.Context(), on("node-1")); err != nil || time.Since(begun) < 30*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// TestDetachRenamed: the node has another name than when it attached (finding N11). The
// name of the VolumeAttachment came from today's, nothing was found, and the volume
// stayed attached after an unmount with Success.
func TestDetachRenamed(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		earlier := nodeObject("node-1")
		if adopted {
			earlier = nodeObject("node-1", objects.CSIVolumeName("d", "h"))
		}
		there := []runtime.Object{ofFlex(on("node-1"), objects.AttachedByNode), earlier, nodeObject("node-new")}
		inCluster(t, there, func(t *testing.T, s *apiServer, c *Cluster) {
			a := daemon(c, "node-new")
			want := on("node-new")
			want.Object = objectName(on("node-1"))
			lost := func() (lost bool, err error) {
				for range 3 { // its informers start with the question
					lost, err = a.Lost(want)
					synctest.Wait()
				}
				return lost, err
			}
			if is, err := lost(); is || err != nil {
				t.Errorf("before: lost %t, %v", is, err)
			}
			if err := a.Detach(t.Context(), want); err != nil {
				t.Error(err)
			}
			if left := s.nodes(); (len(left) > 0) != adopted {
				t.Errorf("adopted %t: left on %v", adopted, left)
			}
			if is, err := lost(); is == adopted || err != nil {
				t.Errorf("after: lost %t, %v", is, err)
			}
		})
	}
}

// TestLost: what is not known is no loss.
func TestLost(t *testing.T) {
	detached, other := ofFlex(on("node-1"), objects.AttachedByNode), ofFlex(on("node-1"), objects.AttachedByNode)
	detached.Status.Attached = false
	other.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = "other"
	for name, tt := range map[string]struct {
		there []runtime.Object
		lost  bool
	}{
		"attached":           {[]runtime.Object{ofFlex(on("node-1"), objects.AttachedByNode)}, false},
		"attached by others": {[]runtime.Object{ofCSI(on("node-1"))}, false},
		"not attached":       {[]runtime.Object{detached}, true},
		"being deleted":      {[]runtime.Object{leaving(ofFlex(on("node-1"), objects.AttachedByNode))}, true},
		"gone":               {nil, true},
		"of another volume":  {[]runtime.Object{other}, true},
	} {
		inCluster(t, tt.there, func(t *testing.T, s *apiServer, c *Cluster) {
			unanswered := &Cluster{core: s.CoreV1(), storage: s.StorageV1(), log: c.log, requests: &requests{}} // does not run
			if _, err := unanswered.Attachments("node-1", objects.AttachedByNode).Lost(on("node-1")); err == nil {
				t.Errorf("%s: known before an answer", name)
			}
			a := daemon(c, "node-1")
			_, _ = a.Lost(on("node-1"))
			synctest.Wait()
			if lost, err := a.Lost(on("node-1")); lost != tt.lost || err != nil {
				t.Errorf("%s: lost %t, %v", name, lost, err)
			}
		})
	}
}

// TestList: what the sweep of a node gets are its own, of the daemon.
func TestList(t *testing.T) {
	other := on("node-1")
	other.Handle = "other"
	there := []runtime.Object{ofFlex(on("node-1"), objects.AttachedByNode), ofFlex(on("node-2"), objects.AttachedByNode), ofFlex(other, objects.AttachedByController)}
	inCluster(t, there, func(t *testing.T, _ *apiServer, c *Cluster) {
		all, err := c.Attachments("node-1", objects.AttachedByNode).List(t.Context())
		if err != nil || !slices.EqualFunc(all, []csivol.Key{{Driver: "d", Handle: "h"}}, func(a *csivol.Attachment, k csivol.Key) bool { return a.Key() == k }) {
			t.Errorf("%v, %v", all, err)
		}
	})
}
