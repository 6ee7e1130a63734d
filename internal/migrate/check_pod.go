package migrate

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// podChecks are about the pods that use the claim.
func podChecks() []check {
	return []check{
		{"pods", "who uses the claim, and whether the kubelet gives the files to the fsGroup of its pods", func(s *subject) bool { return s.rendered() && s.hasClaim() }, (*subject).checkPods},
	}
}

func (s *subject) checkPods(_ context.Context, f *findings) error {
	var names []string
	for _, p := range s.v.Pods {
		names = append(names, fmt.Sprintf("%s on node %s", p.Name, orNone(p.Node)))
		if p.Terminating {
			f.notLive("plan again when it is gone", "pod %s is being deleted", p.Name)
		}
	}
	switch err := s.unknown["pods"]; {
	case err != nil:
		return err
	case len(names) == 0:
		f.ok("no pod uses the claim")
	default:
		f.ok("%s", strings.Join(names, ", "))
	}
	if names := s.withGroup(); len(names) > 0 && s.noGroup() != "" {
		f.note("give the files to the group by a mount flag such as gid=, or an init container, unless the CSI driver does it (VOLUME_MOUNT_GROUP)",
			"pod %s has an fsGroup, and the kubelet will not give the files to it (CSIDriver %s: %s)", list(names), s.v.CSIDriver, s.noGroup())
	}
	return nil
}

// withGroup are the pods with an fsGroup.
func (s *subject) withGroup() (names []string) {
	for _, p := range s.v.Pods {
		if p.FSGroup {
			names = append(names, p.Name)
		}
	}
	return names
}

// noGroup says why the kubelet will not apply the fsGroup of pods to the replacement; empty: it
// will.
func (s *subject) noGroup() string {
	o := cmp.Or(s.driver, &storagev1.CSIDriver{})
	return csivol.FSGroupSkipped(objects.DriverInfo(o).FSGroupPolicy, s.r.mapped.FSType, s.modesAfter())
}

// modesAfter are the access modes of the replacement.
func (s *subject) modesAfter() (all []csivol.AccessMode) {
	modes, _, _ := unstructured.NestedStringSlice(s.r.object.Object, "spec", "accessModes")
	for _, m := range modes {
		all = append(all, csivol.AccessMode(m))
	}
	return all
}

// usersOf returns the pods that use a claim and are not over.
func (w *world) usersOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (pods []Pod, err error) {
	if claim == nil {
		return nil, nil
	}
	all, err := w.podsByClaim(ctx, claim.Namespace)
	for _, o := range all[claim.Name] {
		p := Pod{
			Name: full(o), UID: string(o.UID), Node: o.Spec.NodeName, Phase: string(o.Status.Phase),
			GraceSeconds: ptr.Deref(o.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds),
			Terminating:  o.DeletionTimestamp != nil, FSGroup: o.Spec.SecurityContext != nil && o.Spec.SecurityContext.FSGroup != nil,
		}
		if p.Owner, err = w.owner(ctx, o); err != nil {
			return pods, err
		}
		pods = append(pods, p)
	}
	return pods, err
}

func orNone(s string) string { return cmp.Or(s, "none yet") }

// owner is kind/name of what creates a pod again. A ReplicaSet is as a rule a
// Deployment's.
func (w *world) owner(ctx context.Context, pod *corev1.Pod) (string, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return "", nil
	}
	if owner.Kind == "ReplicaSet" {
		set, err := get(ctx, w, objects.ReplicaSets(), pod.Namespace, owner.Name)
		if err != nil {
			return "", err
		}
		if set != nil && metav1.GetControllerOf(set) != nil {
			owner = metav1.GetControllerOf(set)
		}
	}
	return owner.Kind + "/" + owner.Name, nil
}
