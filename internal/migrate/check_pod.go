package migrate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// podChecks are about the pods that use the claim.
func podChecks() []check {
	return []check{
		{"pods", "who uses the claim", func(s *subject) bool { return s.rendered() && s.hasClaim() }, (*subject).checkPods},
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
	return nil
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

func orNone(s string) string {
	if s == "" {
		return "none yet"
	}
	return s
}

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
