package migrate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// checkPods finds who uses the claim.
func (j *judge) checkPods(ctx context.Context) {
	if j.claim == nil {
		return
	}
	all, err := listed(ctx, j.w, objects.Pods(), j.claim.Namespace, metav1.ListOptions{})
	if err != nil {
		j.unknown("pods", err)
		return
	}
	var names []string
	for _, o := range all {
		if !kubeobject.PodUsesClaim(o, j.claim.Namespace, j.claim.Name) || kubeobject.PodFinished(o) {
			continue
		}
		p := Pod{
			Name: full(o), UID: string(o.UID), Node: o.Spec.NodeName, Phase: string(o.Status.Phase),
			Terminating: o.DeletionTimestamp != nil, FSGroup: o.Spec.SecurityContext != nil && o.Spec.SecurityContext.FSGroup != nil,
		}
		if p.Owner, err = j.w.owner(ctx, o); err != nil {
			j.unknown("pods", err)
			return
		}
		j.v.Pods = append(j.v.Pods, p)
		names = append(names, fmt.Sprintf("%s on node %s", p.Name, orNone(p.Node)))
		if p.Terminating {
			j.check("pods", NotLive, "plan again when it is gone", "pod %s is being deleted", p.Name)
		}
	}
	if len(names) == 0 {
		j.check("pods", OK, "", "no pod uses the claim")
		return
	}
	j.check("pods", OK, "", "%s", strings.Join(names, ", "))
}

func orNone(s string) string {
	if s == "" {
		return "none yet"
	}
	return s
}

// owner is kind/name of what makes a pod anew. A ReplicaSet is as a rule a
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
