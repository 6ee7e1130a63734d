package migrate_test

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// standins act on the nodes of shops, in the place of StatefulSets' controller, the scheduler,
// kubelets, bridges and the external-attacher. They hear of all objects by four watches.
type standins struct {
	w                             *world
	client                        *objects.Client
	volumes, claims, pods, attach cache.Store

	mu    sync.Mutex
	shops map[string]*shop
}

func (w *world) standins() *standins {
	w.t.Helper()
	s := &standins{w: w, client: w.cluster(controlplane.Admin), shops: map[string]*shop{}}
	core, storage := w.Admin().CoreV1().RESTClient(), w.Admin().StorageV1().RESTClient()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var running sync.WaitGroup
	w.t.Cleanup(func() { stop(); running.Wait() })
	watch := func(client rest.Interface, resource string, example runtime.Object) cache.Store {
		i := cache.NewSharedInformer(cache.NewListWatchFromClient(client, resource, "", fields.Everything()), example, 0)
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { s.changed(o) },
			UpdateFunc: func(old, now any) { s.watched(old, now); s.changed(now) },
			DeleteFunc: func(o any) { s.deleted(o); s.changed(o) },
		})
		w.check(err)
		running.Go(func() { i.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			w.t.Fatalf("no watch of %s", resource)
		}
		return i.GetStore()
	}
	s.volumes = watch(core, "persistentvolumes", &corev1.PersistentVolume{})
	s.claims = watch(core, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{})
	s.pods = watch(core, "pods", &corev1.Pod{})
	s.attach = watch(storage, "volumeattachments", &storagev1.VolumeAttachment{})
	return s
}

// shopOf is the one that an object is of; nil: it is of none.
func (s *standins) shopOf(o any) *shop {
	name := ""
	switch o := o.(type) {
	case *corev1.PersistentVolume:
		if o.Spec.ClaimRef != nil {
			name = o.Spec.ClaimRef.Namespace
		}
	case *corev1.PersistentVolumeClaim:
		name = o.Namespace
	case *corev1.Pod:
		name = o.Namespace
	case *storagev1.VolumeAttachment:
		name = o.Spec.NodeName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shops[name]
}

func (s *standins) changed(o any) {
	if shop := s.shopOf(o); shop != nil {
		shop.wake()
	}
}

// watched wants no claim to be deleted, and no volume that does not retain what is stored.
func (s *standins) watched(old, now any) {
	switch now := now.(type) {
	case *corev1.PersistentVolumeClaim:
		if now.DeletionTimestamp != nil {
			s.lost(now, now.Name, "the claim is being deleted")
		}
	case *corev1.PersistentVolume:
		if before, ok := old.(*corev1.PersistentVolume); ok && before.DeletionTimestamp == nil && now.DeletionTimestamp != nil && now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			s.lost(now, now.Name, "the volume is being deleted with policy "+string(now.Spec.PersistentVolumeReclaimPolicy))
		}
	}
}

func (s *standins) deleted(o any) {
	if pv, ok := o.(*corev1.PersistentVolume); ok && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		s.lost(pv, pv.Name, "the volume was deleted with policy "+string(pv.Spec.PersistentVolumeReclaimPolicy))
	}
}

func (s *standins) lost(o any, volume, what string) {
	if shop := s.shopOf(o); shop != nil {
		shop.lost(volume, what)
	}
}

// find returns an object of a store.
func find[T any](store cache.Store, key string) *T {
	o, _, _ := store.GetByKey(key)
	typed, _ := o.(*T)
	return typed
}

// work is what the stand-ins of a shop do until ctx ends.
func (p *shop) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.woken:
		}
		p.mu.Lock()
		v, replicas := p.is, p.replicas
		p.mu.Unlock()
		if v.name == "" {
			continue
		}
		if err := p.settle(ctx, v, replicas); err != nil && ctx.Err() == nil { // a store was behind
			time.AfterFunc(100*time.Millisecond, p.wake)
		}
	}
}

// settle has them act on the objects as they are.
func (p *shop) settle(ctx context.Context, v stock, replicas int) error {
	pv, claim := find[corev1.PersistentVolume](p.all.volumes, v.name), find[corev1.PersistentVolumeClaim](p.all.claims, p.name+"/"+v.name)
	pod := find[corev1.Pod](p.all.pods, p.name+"/"+p.podName())
	if claim == nil {
		return nil
	}
	isBound := claim.Status.Phase == corev1.ClaimBound && pv != nil && pv.Status.Phase == corev1.VolumeBound && pv.Spec.ClaimRef.UID == claim.UID && pv.DeletionTimestamp == nil
	pods := p.all.w.Admin().CoreV1().Pods(p.name)
	switch {
	case pod == nil && replicas > 0: // the StatefulSet
		_, err := pods.Create(ctx, p.pod(v.name, ""), metav1.CreateOptions{})
		if err == nil {
			p.mu.Lock()
			p.made++
			p.mu.Unlock()
		}
		return err
	case pod != nil && pod.Spec.NodeName == "" && isBound: // the scheduler, which waits for the claim
		return pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: p.name}}, metav1.CreateOptions{})
	case pod != nil && pod.Spec.NodeName == "":
		pod = nil // not on the node
	}
	if !isBound && pod != nil {
		return nil // the node keeps what it has
	}
	return p.settleNode(ctx, v, pv, pod)
}

// settleNode is what kubelet, bridge and external-attacher do; the pod is nil when it has ended.
func (p *shop) settleNode(ctx context.Context, v stock, pv *corev1.PersistentVolume, pod *corev1.Pod) error {
	isCSI := pv != nil && pv.Spec.CSI != nil
	attachments, name := p.all.w.Admin().StorageV1().VolumeAttachments(), objects.AttachmentName("vol-"+v.name, csiDriver, p.name)
	va := find[storagev1.VolumeAttachment](p.all.attach, name)
	switch {
	case va == nil && pod != nil && !isCSI:
		_, err := attachments.Create(ctx, inlineAttachment(v.name, p.name), metav1.CreateOptions{})
		return err
	case va != nil && pod == nil && va.Spec.Source.PersistentVolumeName == nil:
		if err := attachments.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	case va != nil && !va.Status.Attached:
		va = va.DeepCopy()
		va.Status.Attached = true
		if _, err := attachments.UpdateStatus(ctx, va, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	var has []bridgestatus.NodeVolume
	if pod != nil && (pod.UID == v.podUID || !isCSI) { // the bridge has mounted it
		has = []bridgestatus.NodeVolume{{
			PersistentVolume: v.name, FlexDriver: flexDriver, CSIDriver: csiDriver, VolumeHandle: "vol-" + v.name, Staged: v.staged,
			TakenOver: isCSI, Pods: []bridgestatus.NodePod{{UID: string(pod.UID), TakenOver: isCSI}},
		}}
	}
	if err := p.report(ctx, has); err != nil {
		return err
	}
	p.mu.Lock()
	p.settled = p.is == v
	p.mu.Unlock()
	if pod == nil || pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err := p.all.w.Admin().CoreV1().Pods(p.name).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// report is what the bridge tells of the node, if it is something new.
func (p *shop) report(ctx context.Context, has []bridgestatus.NodeVolume) error {
	d := bridgestatus.NodeVolumesOf(p.name, bootID, "v1", time.Unix(0, 0), nil, nil)
	d.FlexDrivers, d.Volumes = []string{flexDriver}, has
	text, err := d.Encode()
	if err != nil || text == p.told {
		return err
	}
	maps := p.all.w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: map[string]string{bridgestatus.Label: "true"}}, Data: map[string]string{bridgestatus.Key: text}}
	if p.told == "" {
		_, err = maps.Create(ctx, o, metav1.CreateOptions{})
	} else {
		_, err = maps.Update(ctx, o, metav1.UpdateOptions{})
	}
	if err == nil {
		p.told = text
	}
	return err
}
