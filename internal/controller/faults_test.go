package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestEachRequestFails: without an answer to any one request there is no Success and no "no",
// and what is attached stays.
func TestEachRequestFails(t *testing.T) {
	for name, op := range map[string]struct {
		requests int
		do       func(t *testing.T, c *cluster) (ok bool)
	}{
		"detach": {3, func(t *testing.T, c *cluster) bool {
			return call(t, newController(c), flexDriver, "detach", "pv", "node-1").Code != flex.CodeUnavailable
		}},
		"isattached, nothing has been seen": {2, func(t *testing.T, c *cluster) bool {
			c.unknown = true
			s := call(t, newController(c), flexDriver, "isattached", options, "node-1")
			return s.Code != flex.CodeUnavailable || s.Attached != nil
		}},
		"check": {3, func(t *testing.T, c *cluster) bool {
			c.pods["node-1"] = []corev1.Pod{user()}
			a := old("node-1", objects.AttachedByNode)
			f := controller.Check(t.Context(), a, c, time.Now())
			return f.State != controller.Unknown || !strings.Contains(f.Reason, "away") || f.VolumeAttachment != a
		}},
		"look": {2, func(t *testing.T, c *cluster) bool {
			found, err := controller.Look(t.Context(), c)
			return err == nil || found != nil
		}},
	} {
		for n := 1; ; n++ {
			c := newCluster()
			c.put(old("node-1", objects.AttachedByController))
			c.failAt = n
			ok := op.do(t, c)
			if ok != (n > op.requests) || !ok && len(c.names()) != 1 {
				t.Errorf("%s, request %d fails: done is %t, left: %v", name, n, ok, c.names())
			}
			if n > op.requests {
				break
			}
		}
	}
}

// TestIsAttachedAsks: it asks the API server only where what it has seen is not enough, and
// takes another's attachment, or one that is under way, for none.
func TestIsAttachedAsks(t *testing.T) {
	is := func(c *cluster, inline bool) (bool, int) {
		k, before := newController(c), c.asked
		k.Drivers.All[0].Map = func(_ context.Context, o flex.Options) (*csivol.Volume, error) {
			return &csivol.Volume{FlexDriver: flexDriver, Driver: csiDriver, Handle: o.User["volumeID"], Name: o.VolumeName, Inline: inline}, nil
		}
		s := call(t, k, flexDriver, "isattached", options, "node-1")
		if s.Attached == nil {
			t.Fatalf("%+v", s)
		}
		return *s.Attached, c.asked - before
	}
	c := newCluster()
	c.put(old("node-1", objects.AttachedByController))
	if yes, asked := is(c, false); !yes || asked != 0 {
		t.Errorf("what has been seen: %t, %d requests", yes, asked)
	}
	c.unknown = true
	if yes, _ := is(c, false); !yes || c.stale {
		t.Errorf("what has not been seen: %t, with a PersistentVolume that is not fresh: %t", yes, c.stale)
	}
	for what, spoil := range map[string]func(*storagev1.VolumeAttachment){
		"of another node": func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "node-2" },
		"not attached":    func(a *storagev1.VolumeAttachment) { a.Status.Attached = false },
	} {
		a := old("node-1", objects.AttachedByController)
		spoil(a)
		c.put(a)
		if yes, _ := is(c, false); yes {
			t.Errorf("%s, and it is attached", what)
		}
	}
	delete(c.volumes, "pv") // of an inline volume there is none
	if yes, _ := is(c, true); yes {
		t.Error("an inline volume is attached since there is no PersistentVolume")
	}
}

// TestAttachTakesTheName: the name of the PersistentVolume that has the volume decides, if it is
// known, and if it was attached.
func TestAttachTakesTheName(t *testing.T) {
	c := newCluster()
	c.attachedAs = &csivol.Attached{Object: "csi-x"}
	if s := call(t, newController(c), flexDriver, "attach", options, "node-1"); s.Status != flex.StatusSuccess {
		t.Errorf("attached by one that says no name: %+v", s)
	}
	c.attachedAs.Name, c.attachErr = "pv2", flex.Errorf(flex.CodeUnavailable, "not yet")
	if s := call(t, newController(c), flexDriver, "attach", options, "node-1"); s.Code != flex.CodeUnavailable {
		t.Errorf("not attached: %+v", s)
	}
}

// TestDetachTakesAll: a volume that had another handle before has two.
func TestDetachTakesAll(t *testing.T) {
	c := newCluster()
	for _, handle := range []string{"vol", "vol-before"} {
		c.put(named(handle, "node-1", objects.AttachedByController))
	}
	if s := call(t, newController(c), flexDriver, "detach", "pv", "node-1"); s.Status != flex.StatusSuccess || len(c.names()) != 0 {
		t.Errorf("%+v, left: %v", s, c.names())
	}
}

// named is an old attachment of another volume of the same PersistentVolume.
func named(handle, node, by string) *storagev1.VolumeAttachment {
	a := old(node, by)
	a.Name = objects.AttachmentName(handle, csiDriver, node)
	a.UID = types.UID(a.Name)
	a.Spec.Source.InlineVolumeSpec.CSI.VolumeHandle = handle
	return a
}

func TestLeaked(t *testing.T) {
	now := time.Now()
	for state, want := range map[controller.AttachmentState]bool{
		controller.InUse: false, controller.Adopted: false, controller.Unknown: false, controller.NodeGone: true,
		controller.OutOfService: true, controller.NodeNotReady: true, controller.Forgotten: true, controller.Unused: true,
	} {
		if f := (controller.Finding{VolumeAttachment: old("node-1", ""), State: state}); f.Leaked(now) != want {
			t.Errorf("%s is leaked: %t", state, !want)
		}
	}
	for age, want := range map[time.Duration]bool{time.Minute: false, 10 * time.Minute: false, 10*time.Minute + 1: true} {
		a := old("node-1", "")
		a.DeletionTimestamp = &metav1.Time{Time: now.Add(-age)}
		if f := (controller.Finding{VolumeAttachment: a, State: controller.BeingDeleted}); f.Leaked(now) != want {
			t.Errorf("being deleted for %v is leaked: %t", age, !want)
		}
	}
}

// TestCheckDetails: what a check says and asks, beyond the state.
func TestCheckDetails(t *testing.T) {
	now := time.Now()
	c := newCluster()
	a := old("node-1", objects.AttachedByNode)
	a.CreationTimestamp = metav1.NewTime(now.Add(-10 * time.Minute))
	if f := controller.Check(t.Context(), a, c, now); f.State != controller.Unused || c.asked != 2 {
		t.Errorf("after ten minutes: %s, %d requests; want the node and its pods asked for", f.State, c.asked)
	}
	delete(a.Annotations, objects.PersistentVolumeAnnotation)
	c.pods["node-1"], c.asked = []corev1.Pod{pod("x")}, 0
	if f := controller.Check(t.Context(), a, c, now); f.State != controller.Unused || c.asked != 2 {
		t.Errorf("without a PersistentVolume: %s, %d requests", f.State, c.asked)
	}
	b := old("node-1", objects.AttachedByNode)
	c.pods["node-1"] = []corev1.Pod{pod("x", corev1.Volume{Name: "pv", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/other"}}})}
	if f := controller.Check(t.Context(), b, c, now); f.State != controller.Unused || !c.stale {
		t.Errorf("an inline volume of another driver: %s, with a fresh PersistentVolume: %t", f.State, !c.stale)
	}
	b.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Second)}
	if f := controller.Check(t.Context(), b, c, now); f.Reason != "for 1s" {
		t.Error(f.Reason)
	}
	b.Status.DetachError = &storagev1.VolumeError{Message: "still mounted"}
	if f := controller.Check(t.Context(), b, c, now); !strings.HasPrefix(f.Reason, "for 1s: ") || !strings.Contains(f.Reason, "still mounted") {
		t.Error(f.Reason)
	}
}

// TestRun sweeps until it ends, and forgets what it found: another controller sweeps then. Each
// tenth round, and the first, looks at the pods of nodes that are alive.
func TestRun(t *testing.T) {
	c := newCluster()
	c.put(old("node-1", objects.AttachedByNode))
	ctx, cancel := context.WithCancel(t.Context())
	var looked []int // the rounds that asked for pods
	rounds := 0
	c.onList = func() {
		if rounds++; rounds == 22 {
			cancel()
		}
	}
	c.onPods = func() { looked = append(looked, rounds) }
	s := &controller.Sweeper{View: c, Delete: c.Detach, Log: quiet(), Interval: time.Millisecond}
	s.Run(ctx)
	if want := []int{1, 11, 21}; !slices.Equal(looked, want) {
		t.Errorf("pods were looked at in rounds %v of %d, want %v", looked, rounds, want)
	}
	if r := s.Result(); !r.Looked.IsZero() || len(r.Findings) > 0 {
		t.Errorf("afterwards: %+v", r)
	}
	if c.foreign {
		t.Error("it looks at attachments of others")
	}
}

// TestSweepMany: more than are deleted at once, node by node.
func TestSweepMany(t *testing.T) {
	c := newCluster()
	c.nodes["node-1"], c.nodes["node-2"] = node("node-1", outOfService), node("node-2", outOfService)
	for i := range 25 {
		c.put(named(fmt.Sprintf("vol-%d", i), fmt.Sprintf("node-%d", 1+i%2), objects.AttachedByNode))
	}
	found, err := controller.Look(t.Context(), c)
	if err != nil || len(found) != 25 || c.podsOf != 2 {
		t.Fatalf("%d found, %v, the pods of two nodes asked for %d times", len(found), err, c.podsOf)
	}
	if !slices.IsSortedFunc(found, func(a, b controller.Finding) int {
		return strings.Compare(a.Spec.NodeName+" "+a.Name, b.Spec.NodeName+" "+b.Name)
	}) {
		t.Error("they are not in the order of nodes and names")
	}
	s, _ := newSweeper(c)
	s.Sweep(t.Context(), true)
	if r := s.Result(); len(c.names()) != 0 || r.Swept[controller.OutOfService] != 25 || len(r.Findings) != 0 {
		t.Errorf("left: %v, %+v", c.names(), r)
	}
}

// TestSweepFails: what is not deleted counts as not deleted, and what is goes from the findings
// alone.
func TestSweepFails(t *testing.T) {
	c := newCluster()
	c.nodes["node-1"] = node("node-1", outOfService)
	stays, goes := named("stays", "node-1", objects.AttachedByNode), named("goes", "node-1", objects.AttachedByNode)
	c.put(stays)
	c.put(goes)
	s, _ := newSweeper(c)
	s.Delete = func(ctx context.Context, a *csivol.Attachment) error {
		if a.Handle == "stays" {
			return flex.Errorf(flex.CodeUnavailable, "away")
		}
		return c.Detach(ctx, a)
	}
	s.Sweep(t.Context(), true)
	if r := s.Result(); r.Swept[controller.OutOfService] != 1 || len(r.Findings) != 1 || r.Findings[0].Name != stays.Name {
		t.Errorf("%+v", r)
	}
}

// TestQuickLook: a round that is not full takes what is on a node that is alive for used, but
// for what only the controller may know better.
func TestQuickLook(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*cluster, *storagev1.VolumeAttachment)
		want   controller.AttachmentState
	}{
		"alive": {func(*cluster, *storagev1.VolumeAttachment) {}, controller.InUse},
		"out of service, and ready": {func(c *cluster, _ *storagev1.VolumeAttachment) {
			c.nodes["node-1"] = node("node-1", ready, outOfService)
		}, controller.Unused},
		"not ready":     {func(c *cluster, _ *storagev1.VolumeAttachment) { c.nodes["node-1"] = node("node-1") }, controller.NodeNotReady},
		"being deleted": {func(_ *cluster, a *storagev1.VolumeAttachment) { a.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, controller.BeingDeleted},
		"with attach:true": {func(_ *cluster, a *storagev1.VolumeAttachment) {
			a.Labels[objects.AttachedByLabel] = objects.AttachedByController
		}, controller.Forgotten},
	} {
		c := newCluster()
		a := old("node-1", objects.AttachedByNode)
		test.change(c, a)
		c.put(a)
		s, _ := newSweeper(c)
		s.Sweep(t.Context(), false)
		r := s.Result()
		if len(r.Findings) != 1 || r.Findings[0].State != test.want || r.Findings[0].VolumeAttachment == nil || r.Findings[0].Name != a.Name {
			t.Errorf("%s: %+v", what, r.Findings)
		}
		if test.want == controller.InUse && r.Findings[0].Reason != "its node is there" {
			t.Error(r.Findings[0].Reason)
		}
	}
	if found, err := controller.Look(t.Context(), newCluster()); err != nil || found != nil {
		t.Errorf("with no attachment: %v, %v", found, err)
	}
	c := newCluster()
	if _, err := controller.Look(t.Context(), c); err != nil || c.asked != 1 {
		t.Errorf("with no attachment %d requests, %v", c.asked, err)
	}
	c.put(old("node-1", objects.AttachedByNode))
	if found, err := controller.Look(t.Context(), c); err != nil || len(found) != 1 || found[0].State != controller.Unused {
		t.Errorf("Look is a full round: %+v, %v", found, err)
	}
}

// TestPodsNotRead: where the pods of a node cannot be read nothing of it is unused.
func TestPodsNotRead(t *testing.T) {
	c := newCluster()
	for _, handle := range []string{"a", "b"} {
		c.put(named(handle, "node-1", objects.AttachedByNode))
	}
	c.failAt = 3 // after the attachments and the nodes
	found, err := controller.Look(t.Context(), c)
	if err != nil || len(found) != 2 || found[0].State != controller.Unknown || found[1].State != controller.Unknown {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestDisableForceDetach leaves alone what is on a node that is not ready, and nothing else.
func TestDisableForceDetach(t *testing.T) {
	c := newCluster()
	c.put(old("node-1", objects.AttachedByNode))
	c.nodes["node-1"] = node("node-1", outOfService)
	s, _ := newSweeper(c)
	s.DisableForceDetachOnTimeout = true
	s.Sweep(t.Context(), false)
	if left := c.names(); len(left) != 0 {
		t.Errorf("out of service, and left: %v", left)
	}
}

func TestMetricsByState(t *testing.T) {
	r := controller.SweepResult{Looked: time.UnixMilli(1), Findings: []controller.Finding{{State: controller.InUse}, {State: controller.InUse}, {State: controller.Adopted}}}
	want := "# HELP flex2csi_attachments VolumeAttachments of flex2csi by state.\n# TYPE flex2csi_attachments gauge\n"
	for state, n := range map[controller.AttachmentState]int{controller.InUse: 2, controller.Adopted: 1} {
		want += fmt.Sprintf("flex2csi_attachments{state=%q} %d\n", state, n)
	}
	for _, state := range controller.States() {
		if state != controller.InUse && state != controller.Adopted {
			want += fmt.Sprintf("flex2csi_attachments{state=%q} 0\n", state)
		}
	}
	if err := testutil.CollectAndCompare(controller.NewCollector(func() controller.SweepResult { return r }), strings.NewReader(want), "flex2csi_attachments"); err != nil {
		t.Error(err)
	}
}
