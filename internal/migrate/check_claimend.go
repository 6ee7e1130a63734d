package migrate

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// A claimEnd is what deletes a claim, apart from a person who does.
type claimEnd struct {
	pod    string   // its end: the claim is the Pod's
	scaled string   // StatefulSet/name, when that is scaled down
	owners []string // kind/name, when that is deleted
}

// claimEnd says what becomes of a claim when its pods are stopped, scaled or deleted. The claim
// of a generic ephemeral volume belongs to its pod (pkg/controller/volume/ephemeral/
// controller.go). The StatefulSet controller does the same to the claim of a pod that it is to
// scale away, by the policy whenScaled (pkg/controller/statefulset/stateful_set_utils.go,
// updateClaimOwnerRefForSetAndPod, Kubernetes v1.37.1). Owners are kind/name of its pods'.
func (w *world) claimEnd(ctx context.Context, claim *corev1.PersistentVolumeClaim, owners []string) (end claimEnd, err error) {
	for _, ref := range claim.OwnerReferences {
		if ref.Kind == "Pod" && ref.APIVersion == "v1" {
			end.pod = ref.Name
			continue
		}
		end.owners = append(end.owners, ref.Kind+"/"+ref.Name)
	}
	for _, owner := range compact(owners) {
		name, isSet := strings.CutPrefix(owner, "StatefulSet/")
		if !isSet {
			continue
		}
		set, err := get(ctx, w, objects.StatefulSets(), claim.Namespace, name)
		if err != nil {
			return end, err
		}
		if set != nil && deletesClaims(set) && ofTemplate(set, claim.Name) {
			end.scaled = owner
		}
	}
	return end, nil
}

func deletesClaims(set *appsv1.StatefulSet) bool {
	policy := set.Spec.PersistentVolumeClaimRetentionPolicy
	return policy != nil && policy.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

func ofTemplate(set *appsv1.StatefulSet, claim string) bool {
	for i := range set.Spec.VolumeClaimTemplates {
		if strings.HasPrefix(claim, set.Spec.VolumeClaimTemplates[i].Name+"-"+set.Name+"-") {
			return true
		}
	}
	return false
}

// claimEndChecks come last: what a stop of the pods does matters where they have to stop.
func claimEndChecks() []check {
	return []check{
		{"claim-owner", "that the claim stays when its pods are stopped: it may belong to its pod, or to a StatefulSet that deletes it when it is scaled down", func(s *subject) bool { return s.rendered() && s.hasClaim() }, (*subject).checkClaimEnd},
	}
}

// retainScaled is what keeps the claims of a StatefulSet.
func retainScaled(set string) string {
	return "set persistentVolumeClaimRetentionPolicy.whenScaled: Retain in " + set + " before anything scales it"
}

func (s *subject) checkClaimEnd(ctx context.Context, f *findings) error {
	var owners []string
	for _, p := range s.v.Pods {
		owners = append(owners, p.Owner)
	}
	end, err := s.w.claimEnd(ctx, s.claim, owners)
	if err != nil {
		return err
	}
	stops := s.v.count(NotLive) > 0 && len(s.v.Pods) > 0
	const deletes = "%s deletes claim %s when it is scaled down (persistentVolumeClaimRetentionPolicy.whenScaled: Delete)"
	switch {
	case end.pod != "" && stops:
		f.fails("migrate the volume live, or not at all", "claim %s belongs to Pod %s and is deleted with it, and the pod would have to stop", s.v.Claim, end.pod)
	case end.pod != "":
		f.note("", "claim %s belongs to Pod %s, and is deleted with it", s.v.Claim, end.pod)
	case end.scaled != "" && stops:
		f.decide(retainScaled(end.scaled), deletes, end.scaled, s.v.Claim)
	case end.scaled != "":
		f.note(retainScaled(end.scaled), deletes, end.scaled, s.v.Claim)
	}
	if len(end.owners) > 0 {
		f.note("", "claim %s is deleted with %s", s.v.Claim, strings.Join(end.owners, ", "))
	}
	return nil
}

// howToStop says how the pods of a claim are stopped without the end of the claim. It is an
// error if the claim would not outlive them.
func (m *migration) howToStop(ctx context.Context) (string, error) {
	claim, err := m.getClaim(ctx)
	if err != nil || claim == nil {
		return "", err
	}
	var owners []string
	for _, p := range m.rec.Pods {
		owners = append(owners, p.Owner)
	}
	end, err := m.world().claimEnd(ctx, claim, owners)
	switch {
	case err != nil:
		return "", err
	case claim.DeletionTimestamp != nil:
		return "", terminal("PersistentVolume %s is not replaced: claim %s is being deleted; what is stored is kept (reclaim policy Retain), roll back", m.rec.Volume, m.rec.Claim)
	case end.pod != "":
		return "", terminal("PersistentVolume %s is not replaced: claim %s belongs to Pod %s and is deleted with it; if a StatefulSet scales it away, %s, then resume", m.rec.Volume, m.rec.Claim, end.pod, retainScaled("the StatefulSet"))
	case end.scaled != "":
		return "stop it, and do not scale " + end.scaled + ", which would delete the claim: first " + retainScaled(end.scaled), nil
	}
	return "stop it, by whatever makes it (scale that to 0)", nil
}
