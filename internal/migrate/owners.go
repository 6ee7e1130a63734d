package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
// again what somebody has written down, by how their names begin.
func managers() map[string]string {
	return map[string]string{
		"argocd": "Argo CD", "kustomize-controller": "Flux", "helm": "Helm", "Terraform": "Terraform", "pulumi": "Pulumi", "kapp": "kapp",
		"configsync": "Config Sync",
	}
}

// ownersOf are the tools to whom an object belongs, with how that shows.
func ownersOf(o metav1.Object) (all []string) {
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

// checkOwners: somebody may have the old volume written down elsewhere, and put
// it back, or try to.
func (j *judge) checkOwners() {
	if owners := ownersOf(j.old); len(owners) > 0 {
		j.check("owners", Decide, "put the replacement into the source that it applies, or have it leave the volume alone, before this is migrated; see that it does not delete and create what it cannot change (Replace, force)",
			"the PersistentVolume belongs to %s", strings.Join(owners, ", "))
	}
	for _, ref := range j.old.OwnerReferences {
		j.check("owners", Decide, "see what it does when the volume is not there for a moment, and is another one then",
			"the PersistentVolume is owned by %s %s, which the replacement is, too", ref.Kind, ref.Name)
	}
	if j.old.Annotations[lastApplied] != "" {
		j.check("owners", Note, "change the manifest", "somebody has made it with kubectl apply: that manifest cannot be applied any more, since a volume's source cannot be changed")
	}
}

// checkPolicy: what the old volume was deleted by is not what deletes the new.
func (j *judge) checkPolicy() {
	o := j.v.Original
	switch o.ReclaimPolicy {
	case policyRetain:
		j.check("reclaim-policy", OK, "", "Retain, and stays so")
	case policyDelete:
		by := "nobody, since the volume has no annotation " + provisionedBy
		if o.Provisioner != "" {
			by = o.Provisioner
		}
		j.check("reclaim-policy", Decide, "--restore-reclaim-policy to have what is stored deleted with the claim by CSI driver "+j.v.CSIDriver+"; else it is kept",
			"Delete, which was done by %s; the replacement has Retain", by)
	default:
		j.check("reclaim-policy", Note, "", "%s; the replacement has Retain", o.ReclaimPolicy)
	}
}

// expectations are what people and their alarms will see.
func (j *judge) expectations() {
	if j.claim == nil {
		return
	}
	j.expect("claim %s is Lost for a moment, with the event ClaimLost (%q). Nothing is lost: it is Bound again when the volume controller looks at it, at the latest after 15 s", j.v.Claim, "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	j.expect("alarms on claims that are Lost, such as KubePersistentVolumeErrors, may fire; back-up tools that look at the volume at that moment find none")
	if j.v.Verdict == PodRestart {
		j.expect("the claim is Lost from before the pod is stopped until its node has let go of the volume: some seconds as a rule, and up to a minute where kube-controller-manager attaches the FlexVolume (attach: true), which looks for what to detach once a minute")
	}
	if j.v.Verdict != Live || len(j.v.Pods) == 0 {
		return
	}
	j.expect("within about a minute the kubelet mounts the volume through its CSI plugin beside the old mount; the old one goes with its pod")
	if slices.ContainsFunc(j.v.Pods, func(p Pod) bool { return p.FSGroup }) {
		j.expect("the pod has an fsGroup: with that mount the kubelet may go through all files of the volume and give them to the group once more")
	}
}
