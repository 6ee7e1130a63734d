package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A shop is a namespace and a node of the same name, with one volume after the other.
type shop struct {
	*world // of the present test

	name   string
	all    *standins
	proxy  *controlplane.Proxy
	client *objects.Client
	config *bridgeconfig.Configuration
	woken  chan struct{}
	told   string // of the goroutine of work

	mu       sync.Mutex
	is       stock
	number   int
	replicas int
	made     int // successors of the first pod
	settled  bool
}

// stock is the volume of a shop, and what it was.
type stock struct {
	name   string
	staged string
	podUID types.UID // of the first pod; empty: none
	was    *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

func (s *standins) shop(name string, config *bridgeconfig.Configuration) *shop {
	w := s.w
	w.t.Helper()
	p := &shop{world: w, name: name, all: s, proxy: w.Proxy(), config: config, woken: make(chan struct{}, 1)}
	p.client = w.clusterAt(p.proxy)
	// An administrator may do all, and to ask for that is half of the requests of a plan.
	p.proxy.Answer("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{},"status":{"allowed":true}}`)
	w.Namespace(name)
	w.node(name, controlplane.NodeDriver{Name: csiDriver, NodeID: "id"})
	s.mu.Lock()
	s.shops[name] = p
	s.mu.Unlock()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); p.work(ctx) }()
	w.t.Cleanup(func() { stop(); <-done })
	return p
}

func (p *shop) podName() string { return "orders-0" }

func (p *shop) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// lost fails the test of the volume.
func (p *shop) lost(volume, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.is.name == volume {
		p.t.Errorf("%s: %s", volume, what)
	}
}

// pod is that of the shop, on a node or on none.
func (p *shop) pod(claim, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.podName(), OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "orders", UID: "set", Controller: new(true)}}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{Name: "main", Image: "none"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	}
}

// open brings a new volume to where a command can be given.
func (p *shop) open(w *world, s scene) {
	w.t.Helper()
	p.number++
	v := stock{name: fmt.Sprintf("%s-%d", p.name, p.number), staged: bridgestatus.StagedAsByKubelet}
	replicas := 0
	if s.mode != journal.Live { // as by an earlier version; a StatefulSet makes the pod
		v.staged, replicas = bridgestatus.StagedElsewhere, 1
	}
	p.stock(w, v.name)
	if s.pod {
		pod, err := w.Admin().CoreV1().Pods(p.name).Create(w.t.Context(), p.pod(v.name, p.name), metav1.CreateOptions{})
		w.check(err)
		v.podUID = pod.UID
	}
	p.mu.Lock()
	p.world, p.is, p.replicas, p.settled = w, v, replicas, false
	p.mu.Unlock()
	p.wake()
	p.settles(s.pod)
	v.was, v.claim = w.volume(v.name), p.claim()
	p.mu.Lock()
	p.is = v
	p.mu.Unlock()
	if s.command == "rollback" {
		if came, err := p.do(w.t.Context(), "apply", s.mode, func() time.Duration { return long }, free{}); err != nil || came.Outcome != migrate.Done {
			w.t.Fatalf("before: %+v, %v", came, err)
		}
		if s.mode == journal.Offline { // a person has started the pods
			p.person(1)
		}
		p.settles(s.pod)
	}
	p.mu.Lock()
	p.made = 0
	p.mu.Unlock()
}

// stock makes a FlexVolume and its claim.
func (p *shop) stock(w *world, name string) {
	w.t.Helper()
	ctx, core, size := w.t.Context(), w.Admin().CoreV1(), corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim, err := core.PersistentVolumeClaims(p.name).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: name, StorageClassName: new(""), Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	w.check(err)
	_, err = core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"tier": "db"},
			Annotations: map[string]string{"example.com/note": `<stays> & is "kept"`, "pv.kubernetes.io/provisioned-by": "old.example.com"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: p.name, Name: name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: flexDriver, FSType: "ext4", Options: map[string]string{"volumeID": "vol-" + name}}},
		},
	}, metav1.CreateOptions{})
	w.check(err)
	bound := []byte(`{"status":{"phase":"Bound"}}`) // as the volume controller says, sooner or later
	_, err = core.PersistentVolumes().Patch(ctx, name, types.MergePatchType, bound, metav1.PatchOptions{}, "status")
	w.check(err)
	_, err = core.PersistentVolumeClaims(p.name).Patch(ctx, name, types.MergePatchType, bound, metav1.PatchOptions{}, "status")
	w.check(err)
}

// settles waits until the stand-ins and the control plane have done their part: the claim is bound
// and the pod has the volume.
func (p *shop) settles(pod bool) {
	p.t.Helper()
	what := ""
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if what = p.unsettled(pod); what == "" {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("not within a minute: %s", what)
		}
	}
}

// unsettled says what is missing.
func (p *shop) unsettled(wanted bool) string {
	p.mu.Lock()
	v, settled := p.is, p.settled
	p.mu.Unlock()
	claim, pv := find[corev1.PersistentVolumeClaim](p.all.claims, p.name+"/"+v.name), find[corev1.PersistentVolume](p.all.volumes, v.name)
	if claim == nil || claim.Status.Phase != corev1.ClaimBound || pv == nil || pv.Status.Phase != corev1.VolumeBound {
		return "the claim is not Bound"
	}
	if !wanted {
		return ""
	}
	pod, va := find[corev1.Pod](p.all.pods, p.name+"/"+p.podName()), find[storagev1.VolumeAttachment](p.all.attach, objects.AttachmentName("vol-"+v.name, csiDriver, p.name))
	switch {
	case pod == nil || pod.Status.Phase != corev1.PodRunning:
		return "the pod does not run"
	case va == nil || !va.Status.Attached:
		return "the volume is not attached"
	case !settled:
		return "the bridge has not told"
	}
	return ""
}

// person stops the pods, or lets them start.
func (p *shop) person(replicas int) {
	p.mu.Lock()
	p.replicas = replicas
	p.mu.Unlock()
	if replicas == 0 {
		_ = p.Admin().CoreV1().Pods(p.name).Delete(context.Background(), p.podName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	p.wake()
}

func (p *shop) claim() *corev1.PersistentVolumeClaim {
	p.t.Helper()
	c, err := p.Admin().CoreV1().PersistentVolumeClaims(p.name).Get(p.t.Context(), p.is.name, metav1.GetOptions{})
	p.check(err)
	return c
}

// volumeNow is the PersistentVolume, whichever it is; nil: there is none.
func (p *shop) volumeNow() *corev1.PersistentVolume {
	p.t.Helper()
	pv, err := p.Admin().CoreV1().PersistentVolumes().Get(p.t.Context(), p.is.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	p.check(err)
	return pv
}

// record is that of the journal; nil: there is none.
func (p *shop) record() *journal.Record {
	p.t.Helper()
	rec, err := journal.New(p.all.client, migrate.Namespace, "").Load(context.WithoutCancel(p.t.Context()), p.is.name)
	p.check(err)
	return rec
}

// do runs a command as a process that has just been started. With each event it has another timeout.
func (p *shop) do(ctx context.Context, command string, mode journal.Mode, timeout func() time.Duration, lease migrate.Lease) (migrate.Result, error) {
	p.t.Helper()
	names := []string{p.is.name}
	r := &migrate.Runner{
		Client: p.client, Lease: lease, Now: time.Now, Planner: &migrate.Planner{Client: p.client, Config: p.config, Server: "test", Now: time.Now},
		Journal: journal.New(p.client, migrate.Namespace, ""),
		Options: migrate.Options{Mode: mode, Accept: []string{"reclaim-policy"}, Timeout: timeout()},
	}
	r.Progress = func(e migrate.Event) { // in the goroutine of the volume
		r.Options.Timeout = timeout()
		p.t.Logf("%s %s %s %s %s", time.Now().Format("05.000"), command, e.What, e.Stage, e.Text)
		if e.What == migrate.Waiting && strings.Contains(e.Text, "uses it: stop it") {
			p.person(0)
		}
	}
	var results []migrate.Result
	var records []*journal.Record
	var err error
	switch command {
	case "apply":
		var plan *migrate.Plan
		if plan, err = r.Planner.Plan(ctx, &migrate.Selection{Names: names}); err != nil {
			return migrate.Result{}, err
		}
		tasks, left := migrate.Choose(plan, r.Options)
		if len(left) > 0 {
			return left[0], nil
		}
		results, err = r.Apply(ctx, tasks)
	case "resume":
		if records, err = r.Resumable(ctx, names); err == nil {
			results, err = r.Resume(ctx, records)
		}
	case "rollback":
		if records, err = r.Reversible(ctx, names); err == nil {
			results, err = r.Rollback(ctx, records)
		}
	}
	if len(results) == 0 {
		return migrate.Result{}, err
	}
	return results[0], err
}

// close removes the volume and all that belongs to it.
func (p *shop) close() {
	name, ctx, gone := p.is.name, p.t.Context(), []byte(`{"metadata":{"finalizers":null}}`)
	p.mu.Lock()
	p.is, p.replicas = stock{}, 0
	p.mu.Unlock()
	core, storage := p.Admin().CoreV1(), p.Admin().StorageV1()
	_, errPV := core.PersistentVolumes().Patch(ctx, name, types.MergePatchType, gone, metav1.PatchOptions{})
	_, errClaim := core.PersistentVolumeClaims(p.name).Patch(ctx, name, types.MergePatchType, gone, metav1.PatchOptions{})
	for _, err := range []error{
		errPV, errClaim,
		core.Pods(p.name).Delete(ctx, p.podName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}),
		core.PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{}),
		core.PersistentVolumeClaims(p.name).Delete(ctx, name, metav1.DeleteOptions{}),
		storage.VolumeAttachments().Delete(ctx, objects.AttachmentName("vol-"+name, csiDriver, p.name), metav1.DeleteOptions{}),
		core.ConfigMaps(migrate.Namespace).Delete(ctx, journal.ConfigMapName(name), metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
			p.t.Logf("close: %v", err)
		}
	}
	testenv.Eventually(p.t, "the pod is gone", func() bool { return find[corev1.Pod](p.all.pods, p.name+"/"+p.podName()) == nil })
}
