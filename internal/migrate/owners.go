package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A mark is a label or an annotation by which a tool knows what is its own.
type mark struct{ key, value, tool string } // an empty value: any

// marks are those of the tools' documents, and of what they were called before.
func marks() []mark {
	return []mark{
		{"argocd.argoproj.io/tracking-id", "", "Argo CD"},
		{"argocd.argoproj.io/instance", "", "Argo CD"},
		{"kustomize.toolkit.fluxcd.io/name", "", "Flux"},
		{"helm.toolkit.fluxcd.io/name", "", "Flux"},
		{"fluxcd.io/sync-checksum", "", "Flux"},
		{"fluxcd.io/sync-gc-mark", "", "Flux"},
		{"meta.helm.sh/release-name", "", "Helm"},
		{"helm.sh/chart", "", "Helm"},
		{"heritage", "Tiller", "Helm"},
		{"heritage", "Helm", "Helm"},
		{"crossplane.io/composite", "", "Crossplane"},
		{"crossplane.io/composition-resource-name", "", "Crossplane"},
		{"pulumi.com/autonamed", "", "Pulumi"},
		{"pulumi.com/patchFieldManager", "", "Pulumi"},
		{"objectset.rio.cattle.io/id", "", "Rancher Fleet"},
		{"config.k8s.io/owning-inventory", "", "kpt"},
		{"addonmanager.kubernetes.io/mode", "", "the addon manager"},
		{"kapp.k14s.io/app", "", "kapp"},
		{"configmanagement.gke.io/managed", "", "Config Sync"},
		{"olm.owner", "", "the Operator Lifecycle Manager"},
	}
}

// A manager is how the field managers of a tool begin (metadata.managedFields): the name that it
// gives, and that of its program, which the API server takes where it gives none.
type manager struct{ prefix, tool string }

func managers() []manager {
	return []manager{
		{"argocd", "Argo CD"},
		{"helm-controller", "Flux"},
		{"kustomize-controller", "Flux"},
		{"fluxd", "Flux"},
		{"helm", "Helm"},
		{"Helm", "Helm"},
		{"tiller", "Helm"},
		{"HashiCorp", "Terraform"},
		{"Terraform", "Terraform"},
		{"terraform-provider-", "Terraform"}, // hashicorp/terraform-provider-kubernetes
		{"pulumi", "Pulumi"},
		{"apiextensions.crossplane.io/", "Crossplane"},
		{"crossplane", "Crossplane"},
		{"provider-kubernetes/", "Crossplane"},
		{"kapp", "kapp"},
		{"kpt", "kpt"},
		{"configsync", "Config Sync"},
		{"fleet", "Rancher Fleet"},
		{"OpenAPI-Generator", "a program in Python, such as Ansible"},
	}
}

// instance is Argo CD's label by default, in releases before 3. Charts set it as well, also in
// what provisioners copy to their volumes: alone it proves nothing.
const instance = "app.kubernetes.io/instance"

// OwnersOf are the tools to whom an object belongs, with how that shows.
func OwnersOf(o metav1.Object) (all []string) {
	found := map[string]string{}
	note := func(tool, how string) { found[tool] = cmp.Or(found[tool], how) }
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	for _, m := range marks() {
		if value := cmp.Or(labels[m.key], annotations[m.key]); value != "" && (m.value == "" || m.value == value) {
			note(m.tool, m.key+"="+value)
		}
	}
	if tool := labels["app.kubernetes.io/managed-by"]; tool != "" {
		note(tool, "app.kubernetes.io/managed-by="+tool)
	}
	provisioned := annotations[provisionedBy] != ""
	for _, m := range o.GetManagedFields() {
		if m.Subresource != "" || (provisioned && m.Operation == metav1.ManagedFieldsOperationUpdate) {
			continue // it writes a status, or has changed what a provisioner made
		}
		applies := m.Operation == metav1.ManagedFieldsOperationApply && m.Manager != kubectl
		known := slices.IndexFunc(managers(), func(k manager) bool { return strings.HasPrefix(m.Manager, k.prefix) })
		if known >= 0 {
			note(managers()[known].tool, "field manager "+m.Manager)
		} else if applies { // by whatever name it was configured with
			note("a tool that applies it", "field manager "+m.Manager)
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(found)) {
		all = append(all, fmt.Sprintf("%s (%s)", tool, found[tool]))
	}
	return all
}

// kubectl is the field manager of kubectl apply --server-side.
const kubectl = "kubectl"

// isApplied reports whether kubectl apply has made the object, from a manifest that a person has.
func isApplied(o metav1.Object) bool {
	return o.GetAnnotations()[lastApplied] != "" || slices.ContainsFunc(o.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == kubectl && m.Operation == metav1.ManagedFieldsOperationApply
	})
}

// checkOwners: a tool may have the old volume in its source, and put
// it back, or try to.
func (s *subject) checkOwners(_ context.Context, f *findings) error {
	owners := OwnersOf(s.old)
	if name := s.old.Labels[instance]; name != "" && len(owners) == 0 {
		f.note("see whether Argo CD applies it", "the PersistentVolume has label %s=%s, which charts set, and Argo CD before release 3", instance, name)
	}
	if len(owners) > 0 {
		f.decide("put the replacement into the source that it applies, or have it leave the volume alone, before this is migrated; see that it does not delete and create what it cannot change (Replace, force)",
			"the PersistentVolume belongs to %s", strings.Join(owners, ", "))
	}
	for _, ref := range s.old.OwnerReferences {
		f.decide("see what it does when the volume is not there for a moment, and is another one then",
			"the PersistentVolume is owned by %s %s, which the replacement is, too", ref.Kind, ref.Name)
	}
	if isApplied(s.old) {
		f.note("change the manifest", "it was created with kubectl apply: that manifest cannot be applied any more, since a volume's source cannot be changed")
	}
	return nil
}
