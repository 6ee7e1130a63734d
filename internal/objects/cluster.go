package objects

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReadFlexUses passes on each object of a cluster that may have FlexVolumes in it or make them,
// custom resources included, without those of the resources to skip. Unread is what this user
// may not read, or the API server cannot show. An error is one of a resource of Kubernetes.
func ReadFlexUses(ctx context.Context, c *Client, skip []schema.GroupVersionResource, object func(map[string]any)) (unread []string, err error) {
	known := slices.DeleteFunc(workloads(), func(r schema.GroupVersionResource) bool { return slices.Contains(skip, r) })
	custom, problems := c.Resources(ctx, func(r schema.GroupResource) bool {
		return mayHavePods(r) && !slices.ContainsFunc(workloads(), func(k schema.GroupVersionResource) bool { return k.GroupResource() == r })
	})
	for i, r := range slices.Concat(known, custom) {
		all, err := c.List(ctx, r, "", metav1.ListOptions{})
		outcome := OutcomeOf(err)
		if err != nil && ctx.Err() == nil && (outcome == Refused || outcome == Gone || i >= len(known)) { // no right, or an older release without the resource
			problems = append(problems, err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			object(o.Object)
		}
	}
	return problems, nil
}

// workloads are the resources of Kubernetes that have pods in them.
func workloads() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		Pods().Resource, Deployments().Resource, StatefulSets().Resource, DaemonSets().Resource,
		ReplicaSets().Resource, ReplicationControllers().Resource, Jobs().Resource, CronJobs().Resource,
	}
}

// mayHavePods leaves out resources of Kubernetes and OpenShift that have no pods in them.
// Others may: it is not known what a controller makes of a custom resource.
func mayHavePods(r schema.GroupResource) bool {
	switch r.Group {
	case "":
		return r.Resource == "podtemplates"
	case "apps", "batch": // all others are in workloads, or revisions of those
		return false
	}
	return !slices.Contains([]string{
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
		"autoscaling", "certificates.k8s.io", "coordination.k8s.io", "custom.metrics.k8s.io", "discovery.k8s.io", "events.k8s.io",
		"external.metrics.k8s.io", "flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "metrics.k8s.io", "networking.k8s.io",
		"node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
		"authorization.openshift.io", "image.openshift.io", "oauth.openshift.io", "packages.operators.coreos.com", "project.openshift.io",
		"quota.openshift.io", "route.openshift.io", "security.openshift.io", "user.openshift.io",
	}, r.Group)
}

// Names says where the FlexVolume is: kind, object and volume.
func (u *FlexUse) Names() string {
	name := u.Name
	if u.Namespace != "" {
		name = u.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s, volume %s", u.Kind, name, u.Volume)
}
