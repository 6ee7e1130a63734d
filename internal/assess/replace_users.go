package assess

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
)

// A classStep is what is to be done with an object that names a class.
type classStep struct {
	what string
	// command does it, as pasted into a shell; empty: a person has to.
	command string
}

// A patchOp is an operation of a JSON patch (RFC 6902).
type patchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value string `json:"value"`
}

// users counts what names the classes, and says what to do with it.
func (r *replacer) users() (all []classStep) {
	for _, w := range r.Workloads {
		all = append(all, r.workload(w)...)
	}
	for _, p := range r.Pods {
		if metav1.GetControllerOf(p) != nil || objects.PodFinished(p) {
			continue
		}
		if len(r.ephemeral("Pod "+p.Namespace+"/"+p.Name, "/spec", &p.Spec)) > 0 {
			all = append(all, classStep{what: fmt.Sprintf("Pod %s/%s: re-create it with the new class of its ephemeral volumes", p.Namespace, p.Name)})
		}
	}
	for _, c := range r.pendingClaims() {
		all = append(all, r.pending(c)...)
	}
	return all
}

// workload is about the claim templates and the ephemeral volumes of one.
func (r *replacer) workload(w workload) []classStep {
	template := "/spec/template/spec"
	if w.Kind == "CronJob" {
		template = "/spec/jobTemplate/spec/template/spec"
	}
	o := w.Object
	name := fmt.Sprintf("%s %s/%s", w.Kind, o.GetNamespace(), o.GetName())
	var claims []patchOp
	for i := range w.ClaimTemplates {
		claims = append(claims, r.rename(fmt.Sprintf("/spec/volumeClaimTemplates/%d", i), name+", claim template "+w.ClaimTemplates[i].Name, claimTemplate, &w.ClaimTemplates[i])...)
	}
	ops := slices.Concat(claims, r.ephemeral(name, template, w.Template))
	owner := metav1.GetControllerOf(o)
	switch {
	case len(ops) == 0:
		return nil
	case owner != nil:
		return []classStep{{what: fmt.Sprintf("%s: %s %s makes it; change the class there", name, owner.Kind, owner.Name)}}
	case w.Kind == "Job":
		return []classStep{{what: name + ": its template cannot be changed; let it end, and name the new class in the next one"}}
	case len(claims) > 0:
		return []classStep{{name + ": re-create it with the new class. Its pods and claims stay; claims that are there keep the old class", recreate("statefulset", o, ops, "--cascade=orphan")}}
	}
	return []classStep{{name + ": name the new class. Its pods restart, with new ephemeral volumes", kubectl(o, "patch", w.Kind, patch(ops))}}
}

// pending is about a claim that waits for the provisioner.
func (r *replacer) pending(claim *corev1.PersistentVolumeClaim) []classStep {
	name := fmt.Sprintf("PersistentVolumeClaim %s/%s", claim.Namespace, claim.Name)
	ops := r.rename("", name, pendingClaim, claim)
	if len(ops) == 0 {
		return nil
	}
	name += " is Pending: "
	if owner := metav1.GetControllerOf(claim); owner != nil {
		return []classStep{{what: fmt.Sprintf("%s%s %s makes it; it goes with that", name, owner.Kind, owner.Name)}}
	}
	// One that is bound meanwhile must not be deleted.
	ops = append([]patchOp{{"test", "/status/phase", string(corev1.ClaimPending)}}, ops...)
	return []classStep{{name + "re-create it with the new class", recreate("persistentvolumeclaim", claim, ops, "")}}
}

// ephemeral renames the classes of generic ephemeral volumes.
func (r *replacer) ephemeral(of, path string, spec *corev1.PodSpec) (ops []patchOp) {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			ops = append(ops, r.rename(fmt.Sprintf("%s/volumes/%d/ephemeral/volumeClaimTemplate", path, i), of+", volume "+v.Name, ephemeralVolume, ephemeralClaim(v))...)
		}
	}
	return ops
}

// rename counts a claim, and gives it the new class; without operations if that has the
// same name or cannot be created yet, or the claim goes by the default class.
func (r *replacer) rename(path, of string, kind itemKind, claim *corev1.PersistentVolumeClaim) []patchOp {
	class := r.found.Of(claim)
	if class == nil || r.classes[class.Name] == nil {
		return nil
	}
	c := r.classes[class.Name]
	c.named[kind]++
	if c.wants(of, &claim.Spec); claim.Spec.Selector != nil {
		return nil
	}
	switch {
	case c.object.Name == class.Name, !c.complete():
		return nil
	case claim.Annotations[corev1.BetaStorageClassAnnotation] != "":
		path += "/metadata/annotations/" + strings.ReplaceAll(corev1.BetaStorageClassAnnotation, "/", "~1")
	case claim.Spec.StorageClassName != nil:
		path += "/spec/storageClassName"
	default:
		return nil
	}
	return []patchOp{{"test", path, class.Name}, {"replace", path, c.object.Name}}
}

// wants notes what a claim asks for that FlexVolume provisioners passed over, and that the CSI
// provisioner refuses or passes on (kubernetes-csi/external-provisioner
// pkg/controller/controller.go, prepareProvision).
func (c *newClass) wants(of string, claim *corev1.PersistentVolumeClaimSpec) {
	decide := func(what, value string) {
		c.decide = append(c.decide, fmt.Sprintf("see that CSI driver %s %s %s for %s", cmp.Or(c.object.Provisioner, "-"), what, value, of))
	}
	if claim.Selector != nil {
		c.refused = append(c.refused, fmt.Sprintf("%s has spec.selector %s, which the CSI provisioner refuses: create it again without; a zone belongs into allowedTopologies of the class", of, metav1.FormatLabelSelector(claim.Selector)))
	}
	switch {
	case claim.DataSourceRef != nil:
		decide("makes a volume of", claim.DataSourceRef.Kind+" "+claim.DataSourceRef.Name)
	case claim.DataSource != nil:
		decide("makes a volume of", claim.DataSource.Kind+" "+claim.DataSource.Name)
	}
	for _, mode := range claim.AccessModes {
		if mode != corev1.ReadWriteOnce {
			decide("makes volumes with", string(mode))
		}
	}
}

// recreate changes what cannot be changed in place: the changed object is written to a file
// before the old one is deleted. kubectl create removes the resourceVersion from it
// (k8s.io/cli-runtime, resource/helper.go, Create).
func recreate(kind string, o metav1.Object, ops []patchOp, deletion string) string {
	file := kind + "-" + o.GetNamespace() + "-" + o.GetName() + ".yaml"
	change := kubectl(o, "patch", kind, patch(ops)+" --dry-run=client -o yaml >"+file)
	if change == "" {
		return ""
	}
	return strings.Join([]string{change, kubectl(o, "delete", kind, deletion), kubectl(o, "create", "", "-f "+file)}, " &&\n")
}

// patch has the test first: what was changed since is not changed again.
func patch(ops []patchOp) string {
	text, err := json.Marshal(ops)
	if err != nil {
		return ""
	}
	return "--type=json -p " + report.Quote(string(text))
}

// kubectl is a command for an object; empty if its names are not valid: a file may have any.
func kubectl(o metav1.Object, verb, kind, rest string) string {
	if len(validation.IsDNS1123Subdomain(o.GetName())) > 0 || o.GetNamespace() != "" && len(validation.IsDNS1123Label(o.GetNamespace())) > 0 {
		return ""
	}
	words := []string{"kubectl"}
	if o.GetNamespace() != "" {
		words = append(words, "-n", o.GetNamespace())
	}
	words = append(words, verb)
	if kind != "" {
		words = append(words, strings.ToLower(kind), o.GetName())
	}
	return strings.TrimSpace(strings.Join(append(words, rest), " "))
}
