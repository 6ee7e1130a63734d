package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
)

// related finds the objects that still create FlexVolumes or cannot be migrated. The plan
// prints them with the steps for the operator; apply does not change them.
type related struct {
	w         *world
	drivers   *drivers
	selection *Selection
	// makers: what could make FlexVolumes is looked for in all of the cluster.
	makers bool
	unread []string // of that
}

func (finder *related) find(ctx context.Context, volumes []*volume) ([]Related, error) {
	used, err := finder.classes(ctx, volumes)
	if err != nil {
		return nil, err
	}
	var all []Related
	for _, c := range used.All() {
		all = append(all, Related{
			Kind: "StorageClass", Name: c.Name,
			What:  fmt.Sprintf("volumes of it are FlexVolumes of %s (provisioner %s); new claims would not become CSI volumes", c.FlexDriver, c.Provisioner),
			Steps: []string{"flex2csi migrate classes " + report.Quote(c.Name)},
		})
	}
	namespaces := finder.namespaces(volumes)
	for _, namespace := range namespaces {
		templates, err := finder.templates(ctx, namespace, used)
		if err != nil {
			return nil, err
		}
		inline, err := finder.inline(ctx, namespace)
		if err != nil {
			return nil, err
		}
		all = append(append(all, templates...), inline...)
	}
	if !finder.makers {
		return all, nil
	}
	uses, unread, err := finder.w.flexUses(ctx)
	finder.unread = unread
	for _, u := range uses {
		one := Related{
			Kind: "inline volume", Name: strings.TrimPrefix(u.Namespace+"/", "/") + u.Kind + "/" + u.Name + ", volume " + u.Volume,
			What:  "its pods get a FlexVolume of " + u.Driver + " without a PersistentVolume (" + u.Path + ")",
			Steps: []string{"change it there: a claim, or a CSI volume, instead of flexVolume"},
		}
		if !slices.ContainsFunc(all, func(r Related) bool { return r.Name == one.Name }) { // of its pods
			all = append(all, one)
		}
	}
	return all, err
}

// namespaces to look into: those of the claims; with --all all of them.
func (finder *related) namespaces(volumes []*volume) []string {
	if finder.selection.All {
		return []string{""}
	}
	all := slices.Clone(finder.selection.Namespaces)
	for _, o := range volumes {
		all = append(all, namespaceOf(o.claim()))
	}
	return compact(all)
}

// classes are those that the volumes name, that are there, and that make FlexVolumes.
func (finder *related) classes(ctx context.Context, volumes []*volume) (*objects.FlexClasses, error) {
	if finder.makers {
		return finder.w.flexClasses(ctx)
	}
	named := map[string]*storagev1.StorageClass{}
	var flexVolumes []*corev1.PersistentVolume
	for _, o := range volumes {
		name := objects.VolumeClass(o.PersistentVolume)
		if name == "" || !finder.drivers.has(o.flexDriver()) {
			continue
		}
		flexVolumes = append(flexVolumes, o.PersistentVolume)
		object, err := get(ctx, finder.w, objects.StorageClasses(), "", name)
		if err != nil {
			return nil, err
		}
		if object != nil {
			named[name] = object
		}
	}
	var csiDrivers []string
	for _, d := range finder.drivers.all {
		csiDrivers = append(csiDrivers, d.config.CSIDriver)
	}
	return objects.FindFlexClasses(sorted(named), flexVolumes, csiDrivers), nil
}

// templates are claim templates of StatefulSets that name such a class.
func (finder *related) templates(ctx context.Context, namespace string, used *objects.FlexClasses) (all []Related, err error) {
	if len(used.All()) == 0 {
		return nil, nil
	}
	sets, err := listObjects(ctx, finder.w, objects.StatefulSets(), namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		for _, template := range set.Spec.VolumeClaimTemplates {
			c := used.Of(&template)
			if c == nil {
				continue
			}
			all = append(all, Related{
				Kind: "StatefulSet", Name: full(set) + ", claim template " + template.Name,
				What:  "its new pods get claims of class " + c.Name + ". Claims that are there stay as they are, and are migrated with their volumes",
				Steps: []string{"flex2csi migrate classes " + report.Quote(c.Name)},
			})
		}
	}
	return all, nil
}
