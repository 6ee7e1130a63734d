package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/nodevolumes"
)

// Namespace is where flex2csi is, and where the journal is kept.
const Namespace = "flex2csi"

// rights are what apply does, so that it does not stop half-way for want of
// one. docs/migrate.md has a ClusterRole with them.
func rights(volumes []*Volume) []clusterview.Access {
	var all []clusterview.Access
	add := func(group, resource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			all = append(all, clusterview.Access{Verb: verb, Group: group, Resource: resource, Namespace: namespace})
		}
	}
	add(core, "persistentvolumes", "", "get", "list", "watch", "create", "patch", "delete")
	add(core, "nodes", "", "get", "list", "watch")
	add(storage, "volumeattachments", "", "get", "list")
	add(storage, "csinodes", "", "get", "list")
	add(storage, "csidrivers", "", "get")
	add(core, "configmaps", Namespace, "get", "list", "create", "patch")
	add(core, "configmaps", nodevolumes.Namespace, "get", "list", "watch")
	add("coordination.k8s.io", "leases", Namespace, "get", "create", "update")
	restarted := map[string]bool{}
	for _, v := range volumes {
		namespace, _, ok := strings.Cut(v.Claim, "/")
		if v.Verdict == No || !ok {
			continue
		}
		restarted[namespace] = restarted[namespace] || v.Verdict == PodRestart
	}
	for _, namespace := range slices.Sorted(maps.Keys(restarted)) {
		add(core, "persistentvolumeclaims", namespace, "get", "watch", "patch")
		add(core, "pods", namespace, "get", "list", "watch")
		if restarted[namespace] {
			add(core, "pods/eviction", namespace, "create")
		}
	}
	return all
}

// checkRights asks for each. Who plans need not be who migrates, so that nothing
// fails for that.
func (p *Planner) checkRights(ctx context.Context, volumes []*Volume) Check {
	all := rights(volumes)
	var missing []string
	for _, a := range all {
		may, err := p.Reader.May(ctx, a)
		if err != nil {
			return Check{Name: "rights", Status: Decide, Evidence: fmt.Sprintf("what this user may do is not known: %v", err)}
		}
		if !may {
			missing = append(missing, a.String())
		}
	}
	if len(missing) > 0 {
		return Check{
			Name: "rights", Status: Decide, Evidence: "this user may not " + strings.Join(missing, ", "),
			Do: "migrate as another user, or give these rights (docs/migrate.md)",
		}
	}
	return Check{Name: "rights", Status: OK, Evidence: fmt.Sprintf("this user may do all %d things that apply does", len(all))}
}
