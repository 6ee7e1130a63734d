package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// checkPods finds who uses the claim.
func (j *judge) checkPods(ctx context.Context) {
	if j.claim == nil {
		return
	}
	all, err := j.w.list(ctx, pods(), clusterview.Selector{Namespace: j.claim.namespace()})
	if err != nil {
		j.unknown("pods", err)
		return
	}
	var names []string
	for _, o := range all {
		if !uses(o.tree, j.claim.name()) || finished(o.tree) {
			continue
		}
		p := Pod{
			Name: o.full(), UID: o.uid(), Node: o.text("spec", "nodeName"), Phase: o.text("status", "phase"),
			Terminating: o.deleting(), FSGroup: o.has("spec", "securityContext", "fsGroup"),
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

// uses reports whether a pod has a claim; that of a generic ephemeral volume is
// called after both.
func uses(pod tree, claim string) bool {
	return slices.ContainsFunc(pod.list("spec", "volumes"), func(v tree) bool {
		return v.text("persistentVolumeClaim", "claimName") == claim || v.has("ephemeral") && pod.name()+"-"+v.text("name") == claim
	})
}

// finished: no container of the pod runs, or will.
func finished(pod tree) bool {
	phase := pod.text("status", "phase")
	return phase == "Succeeded" || phase == "Failed"
}

// owner is kind/name of what makes a pod anew. A ReplicaSet is as a rule a
// Deployment's.
func (w *world) owner(ctx context.Context, pod *Object) (string, error) {
	owner := controllerOf(pod.tree)
	if owner == nil {
		return "", nil
	}
	if owner.text("kind") == "ReplicaSet" {
		set, err := w.get(ctx, replicaSets(), pod.namespace(), owner.text("name"))
		if err != nil {
			return "", err
		}
		if set != nil && controllerOf(set.tree) != nil {
			owner = controllerOf(set.tree)
		}
	}
	return owner.text("kind") + "/" + owner.text("name"), nil
}

func controllerOf(o tree) tree {
	for _, ref := range o.list("metadata", "ownerReferences") {
		if ref.truth(false, "controller") {
			return ref
		}
	}
	return nil
}
