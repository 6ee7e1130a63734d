package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// Namespace is where flex2csi is, and where the journal is kept, unless the user names another
// one. It is never looked for: a user who may make a DaemonSet or a ConfigMap of these names in
// another namespace would choose the configuration.
const Namespace = "flex2csi"

// rights are what apply does, so that it does not stop half-way for want of
// one. install/migrate/migrate-role.yaml has a ClusterRole with them.
func rights(volumes []*PlannedVolume, home string) []authorizationv1.ResourceAttributes {
	var all []authorizationv1.ResourceAttributes
	add := func(group, resource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			resource, sub, _ := strings.Cut(resource, "/")
			all = append(all, authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace})
		}
	}
	add("", "persistentvolumes", "", "get", "list", "watch", "create", "patch", "delete")
	add("", "nodes", "", "get", "list", "watch")
	add(storagev1.GroupName, "volumeattachments", "", "get", "list")
	add(storagev1.GroupName, "csinodes", "", "get", "list")
	add(storagev1.GroupName, "csidrivers", "", "get")
	add("", "configmaps", home, "get", "list", "create", "patch")
	add("", "configmaps", bridgestatus.Namespace, "get", "list", "watch")
	add(coordinationv1.GroupName, "leases", home, "get", "create", "update")
	restarted := map[string]bool{}
	for _, v := range volumes {
		namespace, _, ok := strings.Cut(v.Claim, "/")
		if v.Method == No || !ok {
			continue
		}
		restarted[namespace] = restarted[namespace] || v.Method == PodRestart
	}
	for _, namespace := range slices.Sorted(maps.Keys(restarted)) {
		add("", "persistentvolumeclaims", namespace, "get", "watch", "patch")
		add("", "pods", namespace, "get", "list", "watch")
		if restarted[namespace] {
			add("", "pods/eviction", namespace, "create")
		}
	}
	return all
}

// checkRights asks for each. Who plans need not be who migrates, so that nothing
// fails for that.
func (p *Planner) checkRights(ctx context.Context, volumes []*PlannedVolume) Check {
	all := rights(volumes, cmp.Or(p.Namespace, Namespace))
	var missing []string
	for _, a := range all {
		may, err := p.Client.May(ctx, a)
		if err != nil {
			return Check{Name: "rights", Status: Unanswered, Do: "plan again", Evidence: fmt.Sprintf("what this user may do is not known: %v", err)}
		}
		if !may {
			missing = append(missing, objects.AccessText(a))
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
