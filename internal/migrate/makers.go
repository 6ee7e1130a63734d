package migrate

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// flexClasses finds the StorageClasses of a cluster that make FlexVolumes, as assess and classes
// do: a class may be one by the volumes that its provisioner made, also if they were migrated.
func (w *world) flexClasses(ctx context.Context) (*objects.FlexClasses, error) {
	all, err := w.volumes(ctx, "")
	classes, errClasses := listAll(ctx, w, objects.StorageClasses())
	drivers, errDrivers := listAll(ctx, w, objects.CSIDrivers())
	if err := errors.Join(err, errClasses, errDrivers); err != nil {
		return nil, err
	}
	var volumes []*corev1.PersistentVolume
	for _, pv := range all {
		volumes = append(volumes, pv.PersistentVolume)
	}
	var names []string
	for _, d := range drivers {
		names = append(names, d.Name)
	}
	return objects.FindFlexClasses(classes, volumes, names), nil
}

// flexUses finds the FlexVolumes in objects that make pods, as assess does. Unread is what this
// user may not read, or what was not understood.
func (w *world) flexUses(ctx context.Context) (uses []objects.FlexUse, unread []string, err error) {
	var found objects.FlexFinder
	unread, err = objects.ReadFlexUses(ctx, w.client, []schema.GroupVersionResource{objects.Pods().Resource}, func(o map[string]any) { found.Add(o) })
	return found.Uses(), slices.Concat(unread, found.Unclear()), err
}
