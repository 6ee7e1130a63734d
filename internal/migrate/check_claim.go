package migrate

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// claimChecks are about the claim.
func claimChecks() []check {
	return []check{
		{"claim", "that the claim is there, has the UID of `claimRef`, is Bound, was bound before, and is not being deleted", (*subject).claimed, (*subject).checkClaim},
		{"storage-class", "the claim's class and the volume's; an expansion goes by the claim's", (*subject).hasClaim, (*subject).checkStorageClass},
		{"expansion", "that no expansion of the volume is pending, and what completes it: it would count as done, and the storage would not have grown", (*subject).hasClaim, (*subject).checkExpansion},
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
		f.fails("create the claim, if the PersistentVolume was made for it, or remove spec.claimRef; then plan again", "claim %s is not there", s.v.Claim)
	case claim.UID != ref.UID:
		f.fails("remove spec.claimRef of the PersistentVolume, if another claim may have it, and plan again; or leave it out", "claim %s is another one (uid %s) than the volume is bound to (%s)", s.v.Claim, claim.UID, ref.UID)
	case claim.DeletionTimestamp != nil:
		f.fails("migrate the volume of the next one, or none", "claim %s is being deleted: it goes with its last pod", s.v.Claim)
	case claim.Spec.VolumeName != s.v.Name:
		f.fails("correct spec.claimRef of the PersistentVolume, and plan again; or leave it out", "claim %s wants volume %q", s.v.Claim, claim.Spec.VolumeName)
	case claim.Status.Phase != corev1.ClaimBound:
		f.fails("see why, and plan again", "claim %s is %s", s.v.Claim, claim.Status.Phase)
	case claim.Annotations["pv.kubernetes.io/bind-completed"] == "":
		f.fails("see why kube-controller-manager does not bind it, and plan again", "claim %s has no annotation pv.kubernetes.io/bind-completed: without it the claim would not be bound to the replacement as one that was bound before", s.v.Claim)
	default:
		f.ok("claim %s is Bound to it and stays as it is (uid %s)", s.v.Claim, claim.UID)
	}
	return nil
}

func (s *subject) checkStorageClass(_ context.Context, f *findings) error {
	class, _ := objects.ClaimClass(s.claim)
	if volume := objects.VolumeClass(s.old.PersistentVolume); class != volume {
		f.note("", "the claim has the storage class %q and the volume %q; an expansion goes by the claim's", class, volume)
	}
	return nil
}

// checkExpansion: a PersistentVolume has the new size before its filesystem has it. The claim
// that is bound to the replacement would get that size as its own, and no kubelet would expand
// the filesystem (pkg/controller/volume/persistentvolume/pv_controller.go, updateClaimStatus,
// Kubernetes v1.37.1).
func (s *subject) checkExpansion(_ context.Context, f *findings) error {
	const control = "kube-controller-manager raises the capacity of the PersistentVolume first: see the events of the claim; plan again when it is done"
	node := "the node of its next pod"
	if nodes := s.v.nodes(); len(nodes) > 0 {
		node = "node " + list(nodes)
	}
	kubelet := "the kubelet of " + node + " grows it with expandfs of FlexVolume driver " + s.v.FlexDriver +
		" when a pod there mounts it, and the bridge has CSI driver " + s.v.CSIDriver + " do that: restart its pod, see the pod's events, and plan again when it is done"
	wanted, has := s.claim.Spec.Resources.Requests[corev1.ResourceStorage], s.claim.Status.Capacity[corev1.ResourceStorage]
	status := s.claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	on := func(condition corev1.PersistentVolumeClaimConditionType) bool {
		return slices.ContainsFunc(s.claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == condition && c.Status == corev1.ConditionTrue
		})
	}
	switch {
	case on(corev1.PersistentVolumeClaimFileSystemResizePending):
		f.fails(kubelet, "claim %s has the condition %s", s.v.Claim, corev1.PersistentVolumeClaimFileSystemResizePending)
	case on(corev1.PersistentVolumeClaimResizing):
		f.fails(control, "claim %s has the condition %s", s.v.Claim, corev1.PersistentVolumeClaimResizing)
	case strings.HasPrefix(string(status), "Node"):
		f.fails(kubelet, "claim %s has status.allocatedResourceStatuses %s", s.v.Claim, status)
	case status != "":
		f.fails(control, "claim %s has status.allocatedResourceStatuses %s", s.v.Claim, status)
	case s.old.Annotations[preResize] != "":
		f.fails(kubelet, "the PersistentVolume has the annotation %s: %s", preResize, s.old.Annotations[preResize])
	case !has.IsZero() && wanted.Cmp(has) > 0:
		f.fails(control, "claim %s has %s, and wants %s", s.v.Claim, &has, &wanted)
	default:
		f.ok("no expansion is pending")
	}
	return nil
}

// preResize is the annotation with the size before an expansion, which the expand controller
// removes when a node has done its part (pkg/controller/volume/expand/expand_controller.go,
// syncHandler, Kubernetes v1.37.1).
const preResize = "volume.alpha.kubernetes.io/pre-resize-capacity"
