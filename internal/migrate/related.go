package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/shell"
)

// related finds the objects that still create FlexVolumes or cannot be migrated. The plan
// prints them with the steps for the operator; apply does not change them.
type related struct {
	w         *world
	drivers   map[string]*driver
	selection *Selection
}

func (b *related) find(ctx context.Context, volumes []*volume) ([]Related, error) {
	used, err := b.classes(ctx, volumes)
	if err != nil {
		return nil, err
	}
	var all []Related
	for _, name := range slices.Sorted(maps.Keys(used)) {
		all = append(all, used[name].shown())
	}
	namespaces := b.namespaces(volumes)
	for _, namespace := range namespaces {
		templates, err := b.templates(ctx, namespace, used)
		if err != nil {
			return nil, err
		}
		inline, err := b.inline(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all = append(append(all, templates...), inline...)
	}
	return all, nil
}

// namespaces to look into: those of the claims; with --all all of them.
func (b *related) namespaces(volumes []*volume) []string {
	if b.selection.All {
		return []string{""}
	}
	seen := map[string]bool{}
	for _, o := range volumes {
		if namespace, _, ok := strings.Cut(o.claim(), "/"); ok {
			seen[namespace] = true
		}
	}
	for _, namespace := range b.selection.Namespaces {
		seen[namespace] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// class is a StorageClass with FlexVolumes.
type class struct {
	object     *storagev1.StorageClass
	flexDriver string
	csiDriver  string
}

// classes are those that the volumes name and that are there.
func (b *related) classes(ctx context.Context, volumes []*volume) (map[string]class, error) {
	used := map[string]class{}
	for _, o := range volumes {
		name, d := o.Spec.StorageClassName, b.drivers[o.flexDriver()]
		if name == "" || d == nil {
			continue
		}
		object, err := get(ctx, b.w, objects.StorageClasses(), "", name)
		if err != nil {
			return nil, err
		}
		if object != nil && object.Provisioner != d.config.CSIDriver {
			used[name] = class{object, d.config.FlexDriver, d.config.CSIDriver}
		}
	}
	return used, nil
}

func (c class) newName() string { return c.object.Name + "-csi" }

func (c class) shown() Related {
	object := c.object.DeepCopy()
	object.TypeMeta = metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"}
	object.ObjectMeta = metav1.ObjectMeta{Name: c.newName()}
	object.Provisioner, object.Parameters = c.csiDriver, nil
	return Related{
		Kind: "StorageClass", Name: c.object.Name,
		What:        fmt.Sprintf("volumes of it were FlexVolumes of %s (provisioner %s); new claims would not become CSI volumes", c.flexDriver, c.object.Provisioner),
		Replacement: object,
		Steps: []string{
			"write the parameters that CSI driver " + c.csiDriver + " wants into the replacement: they are not those of the old provisioner (" + list(slices.Sorted(maps.Keys(c.object.Parameters))) + ")",
			"create it; make it the default class if the old one is (annotation storageclass.kubernetes.io/is-default-class)",
			"keep the old class for as long as claims name it: an expansion goes by the claim's class (allowVolumeExpansion), not by the provisioner of the volume",
		},
	}
}

// templates are claim templates of StatefulSets that name such a class.
func (b *related) templates(ctx context.Context, namespace string, used map[string]class) (all []Related, err error) {
	if len(used) == 0 {
		return nil, nil
	}
	sets, err := listed(ctx, b.w, objects.StatefulSets(), namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, template := range set.Spec.VolumeClaimTemplates {
			if template.Spec.StorageClassName == nil {
				continue
			}
			c, ok := used[*template.Spec.StorageClassName]
			if !ok {
				continue
			}
			all = append(all, Related{
				Kind: "StatefulSet", Name: full(set) + ", claim template " + template.Name,
				What:        "its new pods get claims of class " + c.object.Name + "; the field cannot be changed in place. Claims that there are stay as they are, and are migrated with their volumes",
				Replacement: map[string]any{"spec": map[string]any{"volumeClaimTemplates": []any{map[string]any{"metadata": map[string]any{"name": template.Name}, "spec": map[string]any{"storageClassName": c.newName()}}}}},
				Steps: []string{
					fmt.Sprintf("kubectl -n %s get statefulset %s -o yaml > %s.yaml, and change storageClassName of the template in it", shell.Quote(set.Namespace), shell.Quote(set.Name), shell.Quote(set.Name)),
					fmt.Sprintf("kubectl -n %s delete statefulset %s --cascade=orphan: the set goes, its pods and claims stay", shell.Quote(set.Namespace), shell.Quote(set.Name)),
					fmt.Sprintf("kubectl -n %s apply -f %s.yaml: the set takes its pods back by their labels, and restarts none with the same template", shell.Quote(set.Namespace), shell.Quote(set.Name)),
				},
			})
		}
	}
	return all, nil
}
