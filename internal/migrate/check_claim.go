package migrate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// claimChecks are about the claim.
func claimChecks() []check {
	return []check{
		{"claim", "that the claim is there, has the UID of `claimRef`, is Bound, was bound before, and is not being deleted", (*subject).claimed, (*subject).checkClaim},
		{"storage-class", "the claim's class and the volume's; an expansion goes by the claim's", (*subject).hasClaim, (*subject).checkStorageClass},
		{"expansion", "that no expansion of the volume is pending: it would count as done, and the storage would not have grown", (*subject).hasClaim, (*subject).checkExpansion},
	}
}

// claimRef is the claim that the volume is bound to; nil: none any more, or not yet.
func (s *subject) claimRef() *corev1.ObjectReference {
	if s.old.Status.Phase == corev1.VolumeReleased {
		return nil
	}
	return s.old.Spec.ClaimRef
}

func (s *subject) claimed() bool  { return s.isFlex() && s.claimRef() != nil }
func (s *subject) hasClaim() bool { return s.claim != nil }

// checkClaim: the claim binds to the replacement by its UID.
func (s *subject) checkClaim(_ context.Context, f *findings) error {
	claim, ref := s.claim, s.claimRef()
	switch {
	case s.unknown["claim"] != nil:
		return s.unknown["claim"]
	case claim == nil:
		f.fails("", "claim %s is not there", s.v.Claim)
	case claim.UID != ref.UID:
		f.fails("", "claim %s is another one (uid %s) than the volume is bound to (%s)", s.v.Claim, claim.UID, ref.UID)
	case claim.DeletionTimestamp != nil:
		f.fails("migrate the volume of the next one, or none", "claim %s is being deleted: it goes with its last pod", s.v.Claim)
	case claim.Spec.VolumeName != s.v.Name:
		f.fails("", "claim %s wants volume %q", s.v.Claim, claim.Spec.VolumeName)
	case claim.Status.Phase != corev1.ClaimBound:
		f.fails("see why, and plan again", "claim %s is %s", s.v.Claim, claim.Status.Phase)
	case claim.Annotations["pv.kubernetes.io/bind-completed"] == "":
		f.fails("", "claim %s has no annotation pv.kubernetes.io/bind-completed: without it the claim would not be bound to the replacement as one that was bound before", s.v.Claim)
	default:
		f.ok("claim %s is Bound to it and stays as it is (uid %s)", s.v.Claim, claim.UID)
	}
	return nil
}

func (s *subject) checkStorageClass(_ context.Context, f *findings) error {
	var class string
	if s.claim.Spec.StorageClassName != nil {
		class = *s.claim.Spec.StorageClassName
	}
	if class != s.old.Spec.StorageClassName {
		f.note("", "the claim has the storage class %q and the volume %q; an expansion goes by the claim's", class, s.old.Spec.StorageClassName)
	}
	return nil
}

// checkExpansion: a PersistentVolume has the new size before its filesystem has it. The claim
// that is bound to the replacement would get that size as its own, and no kubelet would expand
// the filesystem (pkg/controller/volume/persistentvolume/pv_controller.go, updateClaimStatus,
// Kubernetes v1.37.1).
func (s *subject) checkExpansion(_ context.Context, f *findings) error {
	const do = "wait until the expansion is done, which may take a start of its pod, and plan again"
	wanted, has := s.claim.Spec.Resources.Requests[corev1.ResourceStorage], s.claim.Status.Capacity[corev1.ResourceStorage]
	pending := slices.IndexFunc(s.claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Status == corev1.ConditionTrue && slices.Contains([]corev1.PersistentVolumeClaimConditionType{
			corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		}, c.Type)
	})
	switch {
	case pending >= 0:
		f.fails(do, "claim %s has the condition %s", s.v.Claim, s.claim.Status.Conditions[pending].Type)
	case s.old.Annotations[preResize] != "":
		f.fails(do, "the PersistentVolume has the annotation %s: %s", preResize, s.old.Annotations[preResize])
	case !has.IsZero() && wanted.Cmp(has) > 0:
		f.fails(do, "claim %s has %s, and wants %s", s.v.Claim, &has, &wanted)
	default:
		f.ok("no expansion is pending")
	}
	return nil
}

// preResize is the annotation with the size before an expansion, which the expand controller
// removes when a node has done its part (pkg/controller/volume/expand/expand_controller.go,
// syncHandler, Kubernetes v1.37.1).
const preResize = "volume.alpha.kubernetes.io/pre-resize-capacity"
