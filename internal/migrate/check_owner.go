package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownerChecks are about who else acts on the volume.
func ownerChecks() []check {
	return []check{
		{"owners", "GitOps tools, Helm and others who would put the old volume back, or try to", (*subject).rendered, (*subject).checkOwners},
		{"reclaim-policy", "whether something has to be decided about it", (*subject).rendered, (*subject).checkPolicy},
	}
}

// marks are the labels and annotations by which tools know what is theirs.
func marks() map[string]string {
	return map[string]string{
		"argocd.argoproj.io/tracking-id":   "Argo CD",
		"argocd.argoproj.io/instance":      "Argo CD",
		"kustomize.toolkit.fluxcd.io/name": "Flux",
		"helm.toolkit.fluxcd.io/name":      "Flux",
		"meta.helm.sh/release-name":        "Helm",
		"objectset.rio.cattle.io/id":       "Rancher Fleet",
		"config.k8s.io/owning-inventory":   "kpt",
		"addonmanager.kubernetes.io/mode":  "the addon manager",
		"kapp.k14s.io/app":                 "kapp",
		"pulumi.com/autonamed":             "Pulumi",
		"configmanagement.gke.io/managed":  "Config Sync",
	}
}

// managers are field managers (metadata.managedFields) that apply again and
// again what their source says, by how their names begin.
func managers() map[string]string {
	return map[string]string{
		"argocd": "Argo CD", "kustomize-controller": "Flux", "helm": "Helm", "Terraform": "Terraform", "pulumi": "Pulumi", "kapp": "kapp",
		"configsync": "Config Sync",
	}
}

// OwnersOf are the tools to whom an object belongs, with how that shows.
func OwnersOf(o metav1.Object) (all []string) {
	found := map[string]string{}
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	for key, tool := range marks() {
		if value := labels[key] + annotations[key]; value != "" {
			found[tool] = key + "=" + value
		}
	}
	if tool := labels["app.kubernetes.io/managed-by"]; tool != "" && found[tool] == "" {
		found[tool] = "app.kubernetes.io/managed-by=" + tool
	}
	for _, m := range o.GetManagedFields() {
		for prefix, tool := range managers() {
			if name := m.Manager; strings.HasPrefix(name, prefix) && found[tool] == "" {
				found[tool] = "field manager " + name
			}
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(found)) {
		all = append(all, fmt.Sprintf("%s (%s)", tool, found[tool]))
	}
	return all
}

// checkOwners: a tool may have the old volume in its source, and put
// it back, or try to.
func (s *subject) checkOwners(_ context.Context, f *findings) error {
	if owners := OwnersOf(s.old); len(owners) > 0 {
		f.decide("put the replacement into the source that it applies, or have it leave the volume alone, before this is migrated; see that it does not delete and create what it cannot change (Replace, force)",
			"the PersistentVolume belongs to %s", strings.Join(owners, ", "))
	}
	for _, ref := range s.old.OwnerReferences {
		f.decide("see what it does when the volume is not there for a moment, and is another one then",
			"the PersistentVolume is owned by %s %s, which the replacement is, too", ref.Kind, ref.Name)
	}
	if s.old.Annotations[lastApplied] != "" {
		f.note("change the manifest", "it was created with kubectl apply: that manifest cannot be applied any more, since a volume's source cannot be changed")
	}
	return nil
}

// checkPolicy: what the old volume was deleted by is not what deletes the new.
func (s *subject) checkPolicy(_ context.Context, f *findings) error {
	o := s.v.Original
	switch o.ReclaimPolicy {
	case policyRetain:
		f.ok("Retain, and stays so")
	case policyDelete:
		if o.Provisioner == "" {
			f.decide("--restore-reclaim-policy to have Delete again, by which nothing is deleted, as before; else it is Retain",
				"Delete, which no provisioner does, since the volume has no annotation %s; the replacement has Retain", provisionedBy)
			break
		}
		f.decide("--restore-reclaim-policy to have what is stored deleted with the claim by CSI driver "+s.v.CSIDriver+"; else it is kept",
			"Delete, which was done by %s; the replacement has Retain", o.Provisioner)
	default:
		f.note("", "%s; the replacement has Retain", o.ReclaimPolicy)
	}
	return nil
}
