package migrate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A subject is a volume that things are done to, and what it was before.
type subject struct {
	w    *world
	name string
	pod  *corev1.Pod // nil: none uses it

	raw    []byte // the PersistentVolume as the API server sent it
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
}

// idle is a volume that no pod uses.
func (w *world) idle(name string) *subject {
	w.t.Helper()
	w.disk(name, func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{"example.com/note": "<stays> & is \"kept\""}
		pv.Labels = map[string]string{"tier": "db"}
	})
	return w.subject(name, nil)
}

// withPod is one that a pod has from the bridge; its policy was Delete.
func (w *world) withPod(name string) *subject {
	w.t.Helper()
	w.disk(name, func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "old.example.com", "example.com/note": "<stays> & is \"kept\""}
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
	pod := w.pod(name, "node-1", name)
	w.attached(name, "node-1")
	s := w.subject(name, pod)
	s.kubelet()
	return s
}

func (w *world) subject(name string, pod *corev1.Pod) *subject {
	w.t.Helper()
	s := &subject{w: w, name: name, pod: pod}
	testenv.Eventually(w.t, "the volume controller has nothing to do", func() bool {
		return w.claim(name).Status.Phase == corev1.ClaimBound && w.volume(name).Status.Phase == corev1.VolumeBound
	})
	var err error
	s.raw, err = w.cluster(controlplane.Admin).GetRaw(w.t.Context(), objects.PersistentVolumes().Resource, "", name)
	w.check(err)
	s.volume, s.claim = w.volume(name), w.claim(name)
	return s
}

// documents are those of nodes, which several subjects write.
var documents sync.Mutex

// kubelet stands in for the kubelet and the bridge of the node: when the pod's
// claim is bound to a CSI volume, that is mounted next to what the bridge has.
func (s *subject) kubelet() {
	w := s.w
	w.t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	s.tell(ctx, false)
	go func() {
		defer close(done)
		for was := false; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			pv, err := w.Admin().CoreV1().PersistentVolumes().Get(ctx, s.name, metav1.GetOptions{})
			claim, claimErr := w.Admin().CoreV1().PersistentVolumeClaims("default").Get(ctx, s.name, metav1.GetOptions{})
			if err != nil || claimErr != nil || claim.Status.Phase != corev1.ClaimBound {
				continue // it keeps what it has
			}
			if is := pv.Spec.CSI != nil; is != was {
				s.tell(ctx, is)
				was = is
			}
		}
	}()
	w.t.Cleanup(func() { stop(); <-done })
}

// tell writes what the bridge has of the volume.
func (s *subject) tell(ctx context.Context, takenOver bool) {
	documents.Lock()
	defer documents.Unlock()
	maps := s.w.Admin().CoreV1().ConfigMaps(bridgestatus.Namespace)
	d := bridgestatus.NodeVolumesOf("node-1", bootID, "v1", time.Now(), nil, nil)
	d.FlexDrivers = []string{flexDriver}
	old, err := maps.Get(ctx, "node-1", metav1.GetOptions{})
	if err == nil {
		if before, err := bridgestatus.DecodeNodeVolumes(old.Data[bridgestatus.Key]); err == nil {
			for _, v := range before.Volumes {
				if v.PersistentVolume != s.name {
					d.Volumes = append(d.Volumes, v)
				}
			}
		}
	}
	v := has(s.name, s.pod)
	v.TakenOver, v.Pods[0].TakenOver = takenOver, takenOver
	d.Volumes = append(d.Volumes, v)
	text, err := d.Encode()
	if err != nil {
		return
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{bridgestatus.Label: "true"}}, Data: map[string]string{bridgestatus.Key: text}}
	if old.Name == "" {
		_, _ = maps.Create(ctx, o, metav1.CreateOptions{})
		return
	}
	_, _ = maps.Update(ctx, o, metav1.UpdateOptions{})
}

// untouched wants the volume to be what it was, in everything but what the API
// server alone says.
func (s *subject) untouched() {
	s.w.t.Helper()
	now := s.w.volume(s.name)
	if !reflect.DeepEqual(now.Spec.FlexVolume, s.volume.Spec.FlexVolume) || now.Spec.CSI != nil {
		s.w.t.Errorf("%s: the volume is %+v", s.name, now.Spec.PersistentVolumeSource)
	}
	if now.Spec.PersistentVolumeReclaimPolicy != s.volume.Spec.PersistentVolumeReclaimPolicy {
		s.w.t.Errorf("%s: the policy is %s, and was %s", s.name, now.Spec.PersistentVolumeReclaimPolicy, s.volume.Spec.PersistentVolumeReclaimPolicy)
	}
	if !reflect.DeepEqual(now.Annotations, s.volume.Annotations) || !reflect.DeepEqual(now.Labels, s.volume.Labels) || !reflect.DeepEqual(now.OwnerReferences, s.volume.OwnerReferences) {
		s.w.t.Errorf("%s: the metadata are %+v, and were %+v", s.name, now.ObjectMeta, s.volume.ObjectMeta)
	}
	want, got := s.volume.Spec.DeepCopy(), now.Spec.DeepCopy()
	for _, spec := range []*corev1.PersistentVolumeSpec{want, got} {
		spec.ClaimRef.ResourceVersion = ""
	}
	if !reflect.DeepEqual(want, got) {
		s.w.t.Errorf("%s: the spec is %+v, and was %+v", s.name, got, want)
	}
	s.bound()
}

// migrated wants it to be the CSI volume.
func (s *subject) migrated() {
	s.w.t.Helper()
	now := s.w.volume(s.name)
	if csi := now.Spec.CSI; csi == nil || csi.Driver != csiDriver || csi.VolumeHandle != "vol-"+s.name || now.Spec.FlexVolume != nil {
		s.w.t.Errorf("%s: the volume is %+v", s.name, now.Spec.PersistentVolumeSource)
	}
	if now.Annotations["example.com/note"] != s.volume.Annotations["example.com/note"] || now.Annotations[migrate.OriginalAnnotation] == "" || now.Labels[migrate.MigratedLabel] != "true" {
		s.w.t.Errorf("%s: the metadata are %+v", s.name, now.ObjectMeta)
	}
	if now.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		s.w.t.Errorf("%s: the policy is %s", s.name, now.Spec.PersistentVolumeReclaimPolicy)
	}
	s.bound()
}

// bound wants the claim to be the same as before, and bound to the volume that
// there is.
func (s *subject) bound() {
	s.w.t.Helper()
	s.kept()
	now, volume := s.w.claim(s.name), s.w.volume(s.name)
	if now.Status.Phase != corev1.ClaimBound || volume.Status.Phase != corev1.VolumeBound || volume.DeletionTimestamp != nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != s.claim.UID {
		s.w.t.Errorf("%s: claim %s, volume %s for %+v (deleted %v)", s.name, now.Status.Phase, volume.Status.Phase, volume.Spec.ClaimRef, volume.DeletionTimestamp)
	}
	annotations := now.Annotations
	delete(annotations, migrate.MigratedLabel) // if it is kept
	if !reflect.DeepEqual(annotations, s.claim.Annotations) || !reflect.DeepEqual(now.Labels, s.claim.Labels) {
		s.w.t.Errorf("%s: the claim's metadata are %+v, and were %+v", s.name, now.ObjectMeta, s.claim.ObjectMeta)
	}
}

// kept wants the claim, and the pod, not to have been deleted.
func (s *subject) kept() {
	s.w.t.Helper()
	now := s.w.claim(s.name)
	if now.UID != s.claim.UID || now.DeletionTimestamp != nil || !reflect.DeepEqual(now.Spec, s.claim.Spec) {
		s.w.t.Errorf("%s: the claim is %+v, and was %+v", s.name, now, s.claim)
	}
	if s.pod == nil {
		return
	}
	pod, err := s.w.Admin().CoreV1().Pods("default").Get(s.w.t.Context(), s.pod.Name, metav1.GetOptions{})
	if err != nil || pod.UID != s.pod.UID || pod.DeletionTimestamp != nil {
		s.w.t.Errorf("%s: the pod: %v, %v", s.name, pod, err)
	}
}

// restorable wants the volume to be in the journal, on the disk alone and in the cluster alone, and
// in the back-up byte for byte.
func (s *subject) restorable(o *migrator) {
	s.w.t.Helper()
	for where, r := range map[string]*record{"on the disk": o.onDisk(s.name), "in the cluster": s.w.inCluster(s.name)} {
		if r == nil {
			s.w.t.Errorf("%s: there is no journal %s", s.name, where)
			continue
		}
		if is, was := s.w.value(r.Flex), s.w.value(s.raw); !reflect.DeepEqual(is, was) {
			s.w.t.Errorf("%s: %s it is\n%s\nand it was\n%s", s.name, where, r.Flex, s.raw)
		}
	}
	kept, err := os.ReadFile(filepath.Join(o.dir, "backup", s.name, "persistentvolume.json"))
	if err != nil || !bytes.Equal(kept, s.raw) {
		s.w.t.Errorf("%s: %v, the back-up is\n%s\nand it was\n%s", s.name, err, kept, s.raw)
	}
}

// value is what JSON says, with its numbers as they are.
func (w *world) value(text []byte) (value any) {
	w.t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	w.check(d.Decode(&value))
	return value
}

// gone takes everything of it away.
func (s *subject) gone() {
	w := s.w
	w.t.Helper()
	ctx := w.t.Context()
	over := []byte(`{"metadata":{"annotations":{"test/over":"true"}}}`)
	_, _ = w.Admin().CoreV1().PersistentVolumes().Patch(ctx, s.name, types.MergePatchType, over, metav1.PatchOptions{})
	_, _ = w.Admin().CoreV1().PersistentVolumeClaims("default").Patch(ctx, s.name, types.MergePatchType, over, metav1.PatchOptions{})
	if s.pod != nil {
		_ = w.Admin().CoreV1().Pods("default").Delete(ctx, s.pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	_ = w.Admin().CoreV1().PersistentVolumes().Delete(ctx, s.name, metav1.DeleteOptions{})
	_, _ = w.Admin().CoreV1().PersistentVolumes().Patch(ctx, s.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	_ = w.Admin().CoreV1().PersistentVolumeClaims("default").Delete(ctx, s.name, metav1.DeleteOptions{})
	_, _ = w.Admin().CoreV1().PersistentVolumeClaims("default").Patch(ctx, s.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
}

// A record is what is looked at in a journal, read by no code of the product.
type record struct {
	Volume, Stage, Direction, Trouble string
	Sequence                          int64
	Requests                          int
	Flex                              json.RawMessage
}

func (r *record) String() string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s (%d) %s", r.Direction, r.Stage, r.Sequence, r.Trouble)
}

// onDisk is the record of a volume in the migrator's directory; nil: none.
func (o *migrator) onDisk(volume string) *record {
	o.t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, volume+".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		o.t.Fatal(err)
	}
	var m corev1.ConfigMap
	o.w.check(json.Unmarshal(text, &m))
	return o.w.parsed([]byte(m.Data["record.json"]))
}

// inCluster is the record of a volume in the cluster; nil: none.
func (w *world) inCluster(volume string) *record {
	w.t.Helper()
	maps, err := w.Admin().CoreV1().ConfigMaps(migrate.Namespace).List(w.t.Context(), metav1.ListOptions{LabelSelector: "flex2csi.io/migration"})
	w.check(err)
	for i := range maps.Items {
		if r := w.parsed([]byte(maps.Items[i].Data["record.json"])); r.Volume == volume {
			return r
		}
	}
	return nil
}

func (w *world) parsed(text []byte) *record {
	w.t.Helper()
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		w.t.Fatalf("%v:\n%s", err, text)
	}
	return &r
}
