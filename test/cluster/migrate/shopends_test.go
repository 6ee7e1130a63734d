package migrate_test

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// safe wants the claim to be what it was, wherever the migration is, and a volume that is not
// there to be in the journal.
func (p *shop) safe() {
	p.t.Helper()
	claim, was := p.claim(), p.is.claim
	if claim.UID != was.UID || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != was.Spec.VolumeName {
		p.t.Errorf("the claim is %+v", claim)
	}
	rec := p.record()
	if p.volumeNow() == nil && (rec == nil || !slices.Contains([]journal.Stage{journal.Deleting, journal.Deleted, journal.Stopped}, rec.Stage) || len(rec.Flex) == 0 || len(rec.CSI) == 0) {
		p.t.Errorf("there is no volume, and the journal has %+v", rec)
	}
}

// honest wants a result to say what is so.
func (p *shop) honest(command string, came migrate.Result, err error, killed bool) {
	p.t.Helper()
	if killed {
		return
	}
	rec, pv, why := p.record(), p.volumeNow(), came.Why
	if err != nil {
		why += err.Error()
	}
	if came.Outcome != migrate.Done && came.Outcome != "" && why == "" {
		p.t.Errorf("%s says nothing", came.Outcome)
	}
	unfinished, wrong := rec != nil && rec.Unfinished(), false
	switch came.Outcome {
	case migrate.Done:
		wrong = unfinished || pv == nil || err != nil
	case migrate.PutBack:
		wrong = unfinished || pv == nil || (pv.Spec.FlexVolume == nil) == (came.Direction == journal.ToFlexVolume)
	case migrate.Left, migrate.Undecided: // as it was
		wrong = pv == nil && command == "apply" || unfinished && command == "apply"
	case migrate.Unfinished, migrate.Interrupted:
		wrong = !unfinished
	case "":
		wrong = err == nil
	}
	if wrong {
		p.t.Errorf("%s ends with %s (%s), the journal has %+v, and is there a volume: %t", command, came.Outcome, why, rec, pv != nil)
	}
}

// ends wants the journey to have come to its end: after resume at the volume that the journal
// says, after rollback at the FlexVolume.
func (p *shop) ends(then string, released bool) {
	p.t.Helper()
	rec, pv, claim := p.record(), p.volumeNow(), p.claim()
	if pv == nil || pv.Status.Phase != corev1.VolumeBound || pv.DeletionTimestamp != nil || claim.Status.Phase != corev1.ClaimBound || claim.UID != p.is.claim.UID {
		p.t.Errorf("claim %+v, volume %+v", claim, pv)
		return
	}
	flex := rec == nil || then == "rollback" || rec.TakenBack()
	want, got := p.is.was.DeepCopy(), pv.DeepCopy()
	switch delete(got.Annotations, touched); {
	case rec != nil && rec.Unfinished():
		p.t.Errorf("it stays at %s: %s", rec.Stage, rec.Trouble)
	case flex == (pv.Spec.CSI != nil):
		p.t.Errorf("the volume is %+v", pv.Spec.PersistentVolumeSource)
	case !flex:
		csi := pv.Spec.CSI
		if csi.Driver != csiDriver || csi.VolumeHandle != "vol-"+pv.Name || csi.FSType != "ext4" || pv.Annotations[migrate.OriginalAnnotation] == "" || pv.Labels["tier"] != "db" || pv.Annotations["example.com/note"] != want.Annotations["example.com/note"] {
			p.t.Errorf("the volume is %+v", pv)
		}
		if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain && !released {
			p.t.Errorf("it has policy %s", pv.Spec.PersistentVolumeReclaimPolicy)
		}
		want.Spec.PersistentVolumeSource, want.Spec.PersistentVolumeReclaimPolicy = got.Spec.PersistentVolumeSource, got.Spec.PersistentVolumeReclaimPolicy
		want.Labels, want.Annotations = got.Labels, got.Annotations
	}
	if a, b := comparable(want), comparable(got); a != b {
		p.t.Errorf("volume %s was\n%s\nand is\n%s", pv.Name, a, b)
	}
	volumes, err := p.Admin().CoreV1().PersistentVolumes().List(p.t.Context(), metav1.ListOptions{})
	p.check(err)
	for _, other := range volumes.Items {
		if ref := other.Spec.ClaimRef; other.Name != pv.Name && ref != nil && ref.UID == claim.UID {
			p.t.Errorf("the claim has volume %s as well", other.Name)
		}
	}
}

// left wants the pod to have its volume: where it was not to be stopped, the same pod.
func (p *shop) left(s scene) {
	p.t.Helper()
	p.mu.Lock()
	made, first := p.made, p.is.podUID
	p.mu.Unlock()
	if s.mode == journal.Offline || !s.pod {
		return
	}
	p.settles(true)
	pod, err := p.Admin().CoreV1().Pods(p.name).Get(p.t.Context(), p.podName(), metav1.GetOptions{})
	p.check(err)
	if s.mode == journal.Live && pod.UID != first || made > 1 || made > 0 && (s.mode == journal.Live || s.command == "rollback") {
		p.t.Errorf("the pod was replaced %d times: %+v", made, pod)
	}
}
