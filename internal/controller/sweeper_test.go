package controller_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// user is a pod of node-1 that uses the volume.
func user() corev1.Pod {
	return pod("cart-1", claimed("other"), claimed("data"))
}

func pod(name string, volumes ...corev1.Volume) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Volumes: volumes}}
}

func claimed(name string) corev1.Volume {
	return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func TestJudge(t *testing.T) {
	dead := node("node-1", outOfService)
	terminating, finished := user(), user()
	terminating.DeletionTimestamp, finished.Status.Phase = &metav1.Time{Time: time.Now()}, corev1.PodSucceeded
	for name, test := range map[string]struct {
		change func(*cluster, *storagev1.VolumeAttachment)
		want   controller.AttachmentState
	}{
		"a pod uses it":                     {func(c *cluster, _ *storagev1.VolumeAttachment) { c.pods["node-1"] = []corev1.Pod{user()} }, controller.InUse},
		"it is ending on a node that lives": {func(c *cluster, _ *storagev1.VolumeAttachment) { c.pods["node-1"] = []corev1.Pod{terminating} }, controller.InUse},
		"it has finished":                   {func(c *cluster, _ *storagev1.VolumeAttachment) { c.pods["node-1"] = []corev1.Pod{finished} }, controller.Unused},
		"no pod uses it":                    {nil, controller.Unused},
		"no pod uses it, attach:true": {func(_ *cluster, a *storagev1.VolumeAttachment) {
			a.Labels[objects.AttachedByLabel] = objects.AttachedByController
		}, controller.Forgotten},
		"it is new": {func(_ *cluster, a *storagev1.VolumeAttachment) { a.CreationTimestamp = metav1.Now() }, controller.InUse},
		"a pod of another namespace": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			p := user()
			p.Namespace = "other"
			c.pods["node-1"] = []corev1.Pod{p}
		}, controller.Unused},
		"the pod that asked, and no PersistentVolume": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			delete(c.volumes, "pv")
			c.pods["node-1"] = []corev1.Pod{pod("cart-0")}
		}, controller.InUse},
		"no PersistentVolume": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			delete(c.volumes, "pv")
			c.pods["node-1"] = []corev1.Pod{user()}
		}, controller.Unused},
		"an inline volume": {func(c *cluster, a *storagev1.VolumeAttachment) {
			delete(c.volumes, "pv")
			delete(a.Annotations, objects.PodAnnotation)
			c.pods["node-1"] = []corev1.Pod{pod("x", corev1.Volume{Name: "pv", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: flexDriver}}})}
		}, controller.InUse},
		"volumesAttached": {func(c *cluster, a *storagev1.VolumeAttachment) {
			a.Labels[objects.AttachedByLabel] = objects.AttachedByController
			c.nodes["node-1"] = node("node-1", attached(flexDriver+"/pv"))
		}, controller.InUse},
		"volumesInUse": {func(c *cluster, a *storagev1.VolumeAttachment) {
			a.Labels[objects.AttachedByLabel] = objects.AttachedByController
			c.nodes["node-1"] = node("node-1", inUse(flexDriver+"/pv"))
		}, controller.InUse},
		"a CSI volume by now": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1", attached("kubernetes.io/csi/"+csiDriver+"^vol"))
		}, controller.Adopted},
		"no node": {func(c *cluster, _ *storagev1.VolumeAttachment) { delete(c.nodes, "node-1") }, controller.NodeGone},
		"no node, and a pod that was not removed": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			delete(c.nodes, "node-1")
			c.pods["node-1"] = []corev1.Pod{user()}
		}, controller.InUse},
		"no node, and a pod that is to go": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			delete(c.nodes, "node-1")
			c.pods["node-1"] = []corev1.Pod{terminating}
		}, controller.NodeGone},
		"out of service": {func(c *cluster, _ *storagev1.VolumeAttachment) { c.nodes["node-1"] = dead }, controller.OutOfService},
		"out of service, and a pod": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = dead
			c.pods["node-1"] = []corev1.Pod{user()}
		}, controller.InUse},
		"out of service, whatever its status says": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1", outOfService, inUse(flexDriver+"/pv"), attached(flexDriver+"/pv"))
			c.pods["node-1"] = []corev1.Pod{terminating}
		}, controller.OutOfService},
		"out of service, and ready": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1", outOfService, ready)
			c.pods["node-1"] = []corev1.Pod{terminating}
		}, controller.InUse},
		"not ready": {func(c *cluster, _ *storagev1.VolumeAttachment) { c.nodes["node-1"] = node("node-1") }, controller.NodeNotReady},
		"not ready, and a pod that was not removed": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1")
			c.pods["node-1"] = []corev1.Pod{terminating} // as for kube-controller-manager
		}, controller.InUse},
		"not ready, and it is new": {func(c *cluster, a *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1")
			a.CreationTimestamp = metav1.Now()
		}, controller.InUse},
		"not ready, attach:true": {func(c *cluster, a *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1")
			a.Labels[objects.AttachedByLabel] = objects.AttachedByController
		}, controller.Forgotten},
		"being deleted": {func(_ *cluster, a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, controller.BeingDeleted},
		"not known":     {func(c *cluster, _ *storagev1.VolumeAttachment) { c.err = errors.New("away") }, controller.Unknown},
	} {
		c := newCluster()
		a := old("node-1", objects.AttachedByNode)
		if test.change != nil {
			test.change(c, a)
		}
		if f := controller.Check(t.Context(), a, c, time.Now()); f.State != test.want || f.Reason == "" {
			t.Errorf("%s: %s (%s), want %s", name, f.State, f.Reason, test.want)
		}
	}
}

// newSweeper returns one and its clock.
func newSweeper(c *cluster) (*controller.Sweeper, *time.Time) {
	now := time.Now()
	return &controller.Sweeper{View: c, Delete: c.Detach, Log: quiet(), Now: func() time.Time { return now }}, &now
}

// TestSweep: what is due goes, all else stays.
func TestSweep(t *testing.T) {
	c := newCluster()
	delete(c.nodes, "node-1")
	c.nodes["node-2"] = node("node-2", outOfService)
	c.nodes["node-3"] = node("node-3", ready)
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		c.put(old(node, objects.AttachedByNode))
	}
	forgotten := old("node-3", objects.AttachedByController)
	forgotten.Name, forgotten.UID = objects.AttachmentName("vol-2", csiDriver, "node-3"), "vol-2"
	forgotten.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = "vol-2"
	c.put(forgotten)

	s, now := newSweeper(c)
	for _, step := range []struct {
		wait time.Duration
		left int
		gone string // the last one
	}{
		{0, 3, objects.AttachmentName("vol", csiDriver, "node-2")},
		{5 * time.Minute, 3, ""},
		{time.Minute, 2, objects.AttachmentName("vol", csiDriver, "node-1")},
		{4 * time.Minute, 1, forgotten.Name},
		{24 * time.Hour, 1, ""},
	} {
		*now = now.Add(step.wait)
		s.Sweep(t.Context(), true)
		if left := c.names(); len(left) != step.left || slices.Contains(left, step.gone) {
			t.Errorf("after another %v there are %v", step.wait, left)
		}
	}
	r := s.Result()
	if r.Swept[controller.OutOfService] != 1 || r.Swept[controller.NodeGone] != 1 || r.Swept[controller.Forgotten] != 1 {
		t.Errorf("swept %v", r.Swept)
	}
	if len(r.Findings) != 1 || r.Findings[0].State != controller.Unused || !r.Findings[0].Leaked(*now) {
		t.Errorf("findings: %+v", r.Findings)
	}
}

// TestGrace: a state has to last without interruption.
func TestGrace(t *testing.T) {
	c := newCluster()
	c.put(old("node-1", objects.AttachedByNode))
	s, now := newSweeper(c)
	n := c.nodes["node-1"]
	for range 3 {
		delete(c.nodes, "node-1")
		s.Sweep(t.Context(), false)
		*now = now.Add(4 * time.Minute)
		c.nodes["node-1"] = n // it comes back
		s.Sweep(t.Context(), false)
	}
	if len(c.names()) != 1 {
		t.Fatal("it was deleted although its node came back")
	}
	delete(c.nodes, "node-1")
	s.Sweep(t.Context(), false)
	*now = now.Add(6 * time.Minute)
	s.Sweep(t.Context(), false)
	if len(c.names()) != 0 {
		t.Error("it was not deleted")
	}
}

// TestNotReady: a node that was off, without the taint, kept its volumes for ever. Only
// its kubelet may be off: so the sweeper waits as long as kube-controller-manager, and
// until the node has no pods.
func TestNotReady(t *testing.T) {
	for _, disabled := range []bool{false, true} {
		c := newCluster()
		c.put(old("node-1", objects.AttachedByNode))
		s, now := newSweeper(c)
		s.DisableForceDetachOnTimeout = disabled
		after := func(wait time.Duration) int {
			*now = now.Add(wait)
			s.Sweep(t.Context(), false) // which does not look closely at nodes that live
			return len(c.names())
		}
		c.nodes["node-1"] = node("node-1")
		c.pods["node-1"] = []corev1.Pod{user()}
		if after(0)+after(time.Hour) != 2 {
			t.Error("it was deleted under a pod")
		}
		c.pods["node-1"] = nil
		if after(time.Minute)+after(5*time.Minute) != 2 {
			t.Error("it was deleted at once")
		}
		c.nodes["node-1"] = node("node-1", ready)
		if after(30*time.Second) != 1 {
			t.Error("it was deleted from a node that is ready")
		}
		c.nodes["node-1"] = node("node-1")
		if after(30*time.Second)+after(5*time.Minute) != 2 {
			t.Error("it was deleted although the node had been ready in between")
		}
		if left := after(time.Minute); (left == 1) != disabled {
			t.Errorf("disabled %t: after six minutes there are %d", disabled, left)
		}
		if r := s.Result(); r.Swept[controller.NodeNotReady] != map[bool]int{false: 1}[disabled] {
			t.Errorf("swept %v", r.Swept)
		}
	}
}

// comesBack is a cluster with a node that is ready again between check and deletion.
type comesBack struct {
	*cluster
	node corev1.Node
}

func (c *comesBack) ListNodes(context.Context) ([]corev1.Node, error) { return nil, nil }

func (c *comesBack) GetNode(context.Context, string) (*corev1.Node, error) { return &c.node, nil }

func TestLastLook(t *testing.T) {
	c := newCluster()
	c.put(old("node-1", objects.AttachedByNode))
	s, now := newSweeper(c)
	s.View = &comesBack{c, c.nodes["node-1"]}
	s.Sweep(t.Context(), true)
	*now = now.Add(time.Hour)
	s.Sweep(t.Context(), true)
	if len(c.names()) != 1 {
		t.Error("it was deleted although the node had come back")
	}
}

// TestUnusedIsRemembered: most rounds do not check the pods of nodes that are alive.
func TestUnusedIsRemembered(t *testing.T) {
	c := newCluster()
	c.put(old("node-1", objects.AttachedByNode))
	s, _ := newSweeper(c)
	s.Sweep(t.Context(), true)
	c.pods["node-1"] = []corev1.Pod{user()}
	asked := c.asked
	s.Sweep(t.Context(), false)
	if r := s.Result(); len(r.Findings) != 1 || r.Findings[0].State != controller.Unused {
		t.Errorf("between close looks: %+v", r.Findings)
	}
	if n := c.asked - asked; n != 2 {
		t.Errorf("a quick look asked %d questions, want 2: the attachments and the nodes", n)
	}
	s.Sweep(t.Context(), true)
	if r := s.Result(); len(r.Findings) != 1 || r.Findings[0].State != controller.InUse {
		t.Errorf("after a close look: %+v", r.Findings)
	}
}

// TestSweepWithoutAnswers deletes nothing.
func TestSweepWithoutAnswers(t *testing.T) {
	c := newCluster()
	delete(c.nodes, "node-1")
	c.put(old("node-1", objects.AttachedByNode))
	c.err = errors.New("away")
	s, now := newSweeper(c)
	s.Sweep(t.Context(), true)
	*now = now.Add(time.Hour)
	s.Sweep(t.Context(), true)
	c.err = nil
	if len(c.names()) != 1 || !s.Result().Looked.IsZero() {
		t.Errorf("left: %v, result: %+v", c.names(), s.Result())
	}
}

func TestMetrics(t *testing.T) {
	f := controller.Finding{VolumeAttachment: old("node-1", objects.AttachedByNode), State: controller.Unused}
	r := controller.SweepResult{
		Findings: []controller.Finding{f, {State: controller.InUse}, {State: controller.InUse}},
		Looked:   time.UnixMilli(1500), Swept: map[controller.AttachmentState]int{controller.NodeGone: 4},
	}
	want := `
# HELP flex2csi_leaked_attachments VolumeAttachments of flex2csi that keep a volume on a node for no reason.
# TYPE flex2csi_leaked_attachments gauge
flex2csi_leaked_attachments 1
# HELP flex2csi_sweeper_last_look_timestamp_seconds When this controller last looked at all VolumeAttachments.
# TYPE flex2csi_sweeper_last_look_timestamp_seconds gauge
flex2csi_sweeper_last_look_timestamp_seconds 1.5
# HELP flex2csi_swept_attachments_total VolumeAttachments that this controller has deleted.
# TYPE flex2csi_swept_attachments_total counter
flex2csi_swept_attachments_total{state="forgotten"} 0
flex2csi_swept_attachments_total{state="node gone"} 4
flex2csi_swept_attachments_total{state="node not ready"} 0
flex2csi_swept_attachments_total{state="out of service"} 0
`
	names := []string{"flex2csi_leaked_attachments", "flex2csi_sweeper_last_look_timestamp_seconds", "flex2csi_swept_attachments_total"}
	collector := controller.NewCollector(func() controller.SweepResult { return r })
	if err := testutil.CollectAndCompare(collector, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(collector, "flex2csi_attachments"); n != len(controller.States()) {
		t.Errorf("%d states", n)
	}
	r = controller.SweepResult{}
	if n := testutil.CollectAndCount(collector); n != 4 {
		t.Errorf("one that does not sweep has %d metrics, want what it has swept", n)
	}
}

var _ controller.View = (*cluster)(nil)
