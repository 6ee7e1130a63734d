package objects

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A FlexFinder collects the FlexVolumes of objects, one object after another. The zero value has
// none.
type FlexFinder struct {
	// Manifests: the objects are from files, so that what a chart or a repository makes of
	// them is not among them.
	Manifests bool

	read    map[string]bool // by kind/namespace/name
	uses    []FlexUse
	unclear map[string][]string // names by kind
}

// Add takes an object, and reports whether it was there already: a directory may have one
// twice.
func (f *FlexFinder) Add(object map[string]any) (again bool) {
	o := &unstructured.Unstructured{Object: object}
	if key := key(o.GetKind(), o.GetNamespace(), o.GetName()); o.GetName() != "" {
		if f.read[key] {
			return true
		}
		if f.read == nil {
			f.read = map[string]bool{}
		}
		f.read[key] = true
	}
	gk := o.GroupVersionKind().GroupKind()
	if slices.Contains(withoutPods(), gk) || o.GetLabels()["flex2csi.io/migration"] != "" { // the journal
		return false
	}
	uses, unclear := FlexUsesIn(object)
	owner := ""
	if c := metav1.GetControllerOfNoCopy(o); c != nil && gk.Kind != "Pod" {
		owner = key(c.Kind, o.GetNamespace(), c.Name)
	}
	for _, use := range uses {
		use.owner = owner
		f.uses = append(f.uses, use)
	}
	if f.Manifests && len(uses)+len(unclear) == 0 && slices.Contains(renderers(), gk) {
		unclear = append(unclear, "what it renders was not read: render it first, for example with helm template, kustomize build or argocd app manifests")
	}
	for _, text := range unclear {
		f.notClear(o, text)
	}
	return false
}

func key(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

func (f *FlexFinder) notClear(o *unstructured.Unstructured, text string) {
	if f.unclear == nil {
		f.unclear = map[string][]string{}
	}
	name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
	f.unclear[o.GetKind()] = append(f.unclear[o.GetKind()], strings.TrimSpace(name+": "+text))
}

// Uses returns the FlexVolumes, without those of objects that another object has made which
// was read as well, such as the ReplicaSets of a Deployment: that one has the template. Pods
// are never left out.
func (f *FlexFinder) Uses() []FlexUse {
	return slices.DeleteFunc(slices.Clone(f.uses), func(u FlexUse) bool { return u.owner != "" && f.read[u.owner] })
}

// Unclear says what was not understood, with the number of its objects: a line for each kind.
func (f *FlexFinder) Unclear() (all []string) {
	const most = 5
	for _, kind := range slices.Sorted(maps.Keys(f.unclear)) {
		texts := f.unclear[kind]
		more := ""
		if len(texts) > most {
			more = fmt.Sprintf("; and %d more", len(texts)-most)
		}
		all = append(all, fmt.Sprintf("not understood: %d of kind %s: %s%s", len(texts), kind, strings.Join(texts[:min(most, len(texts))], "; "), more))
	}
	return all
}

func kinds(group string, names ...string) (all []schema.GroupKind) {
	for _, name := range names {
		all = append(all, schema.GroupKind{Group: group, Kind: name})
	}
	return all
}

// withoutPods have a flexVolume in a schema or a rule, or in data that is not to be read.
func withoutPods() []schema.GroupKind {
	return slices.Concat(kinds("", "Secret"), kinds("apiextensions.k8s.io", "CustomResourceDefinition"),
		kinds("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"))
}

// renderers have the name of a chart or of a repository, and objects are made of that.
func renderers() []schema.GroupKind {
	return slices.Concat(
		kinds("helm.toolkit.fluxcd.io", "HelmRelease"), kinds("helm.fluxcd.io", "HelmRelease"), kinds("helm.cattle.io", "HelmChart"),
		kinds("helm.crossplane.io", "Release"), kinds("argoproj.io", "Application", "ApplicationSet"),
		kinds("kustomize.toolkit.fluxcd.io", "Kustomization"), kinds("fleet.cattle.io", "GitRepo", "HelmOp"),
		kinds("infra.contrib.fluxcd.io", "Terraform"), kinds("tf.upbound.io", "Workspace"), kinds("opentofu.upbound.io", "Workspace"),
		kinds("app.terraform.io", "Workspace"), kinds("pulumi.com", "Stack", "Program"),
	)
}
