package migrate

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// volumeChecks are about the PersistentVolume alone.
func volumeChecks() []check {
	return []check{
		{"flex-volume", "that it is one, and has not been migrated before", (*subject).isOther, (*subject).checkOther},
		{"state", "the phase of the volume, and that it is not being deleted", (*subject).isFlex, (*subject).checkState},
		{"finalizers", "that there are none but the control plane's. Stale ones of external-attachers are taken away as well", (*subject).isFlex, (*subject).checkFinalizers},
		{"read-only", "that `flexVolume.readOnly` had no effect, and is left away", (*subject).isFlex, (*subject).checkReadOnly},
		{"mount-options", "that `mountOptions` had no effect, and what comes in their place", (*subject).isFlex, (*subject).checkMountOptions},
	}
}

// checkOther is a volume that is no FlexVolume.
func (s *subject) checkOther(_ context.Context, f *findings) error {
	was := s.old.Annotations[FlexDriverAnnotation]
	switch {
	case s.old.Spec.CSI == nil:
		f.fails("leave it out: flex2csi migrate plan --all shows the FlexVolumes", "it is no FlexVolume")
	case was != "":
		s.v.Migrated = true
		f.fails("flex2csi migrate rollback makes a FlexVolume of it again", "it has been migrated already: it was a FlexVolume of %s", was)
	default:
		f.fails("leave it out", "it is a CSI volume of %s", s.v.CSIDriver)
	}
	return nil
}

// stamp is a time as the API server writes it.
func stamp(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// checkState: what the PersistentVolume says of itself.
func (s *subject) checkState(ctx context.Context, f *findings) error {
	switch phase := s.v.Original.Phase; {
	case s.old.deleting():
		f.fails("find out who deletes it", "it is being deleted since %s", stamp(s.old.DeletionTimestamp))
	case phase == "Bound":
		f.ok("Bound to claim %s", s.v.Claim)
	case phase == "Available":
		f.note("", "it is Available: no claim has it, and one may take it while it is replaced")
	case phase == "Released" && s.old.Spec.ClaimRef != nil:
		// The migration would take the pods of the claim of that name for the volume's.
		claim, err := get(ctx, s.w, objects.Claims(), s.old.Spec.ClaimRef.Namespace, s.old.Spec.ClaimRef.Name)
		if err != nil {
			return err
		}
		if claim != nil {
			f.fails("remove spec.claimRef of the PersistentVolume, if another claim may have it, and plan again; or delete it",
				"it is Released, and its claim's name is that of another claim now (%s, uid %s)", s.v.Claim, claim.UID)
			break
		}
		f.note("", "it is Released: its claim %s is gone, and no pod can have it", s.v.Claim)
	default:
		f.fails("see what is wrong with it, and plan again", "its phase is %q", phase)
	}
	if mode := s.old.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		f.fails("leave it out, and re-create it with volumeMode Filesystem", "spec.volumeMode is Block, which no FlexVolume can be")
	}
	return nil
}

// checkFinalizers: the swap removes those that are known to protect nothing then. Another one
// would keep the volume in deletion, with its claim Lost.
func (s *subject) checkFinalizers(_ context.Context, f *findings) error {
	removed, others := sortFinalizers(s.old)
	switch {
	case len(others) > 0:
		f.fails("find out which controller has set it, and have that one remove it: no other knows what it waits for",
			"the PersistentVolume has the finalizer %s, which is none of the control plane's", list(others))
	case len(removed) > 0:
		f.ok("%s, which the control plane sets, and sets again where it is needed", list(removed))
	default:
		f.ok("none")
	}
	return nil
}

// sortFinalizers returns the finalizers that the swap removes, and those that only their
// owner may remove.
func sortFinalizers(pv *volume) (removed, others []string) {
	for _, f := range pv.Finalizers {
		if f == protection || strings.HasPrefix(f, attacherPrefix) {
			removed = append(removed, f)
		} else {
			others = append(others, f)
		}
	}
	return removed, others
}

// checkReadOnly: the field has no effect on FlexVolumes of a PersistentVolume
// (pkg/volume/flexvolume/util.go, getReadOnly, Kubernetes v1.37.1), and would
// have one on how a CSI volume is attached.
func (s *subject) checkReadOnly(_ context.Context, f *findings) error {
	if s.old.Spec.FlexVolume.ReadOnly {
		f.note("", "spec.flexVolume.readOnly is true, which had no effect: whether a pod may write, its claim's volume says; it is left away")
	}
	return nil
}

func (s *subject) checkMountOptions(_ context.Context, f *findings) error {
	if before := s.old.Spec.MountOptions; len(before) > 0 {
		f.note("", "the volume had spec.mountOptions (%s), with which the kubelet mounts no FlexVolume; now there are those of the mapping", strings.Join(before, ","))
	}
	return nil
}
