package migrate

import (
	"context"
	"slices"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// inline are volumes that pods have without a PersistentVolume. There is no
// object that could be replaced: whoever has written the pod has to write it in
// another way.
func (b *beside) inline(ctx context.Context, namespace string) (all []Beside, err error) {
	found, err := b.w.list(ctx, pods(), clusterview.Selector{Namespace: namespace})
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{} // by owner: its pods are alike
	for _, pod := range found {
		for _, volume := range pod.list("spec", "volumes") {
			d := b.drivers[volume.text("flexVolume", "driver")]
			if d == nil || finished(pod.tree) {
				continue
			}
			owner, err := b.w.owner(ctx, pod)
			if err != nil {
				return nil, err
			}
			name := pod.namespace() + "/" + owner
			if owner == "" {
				name = pod.namespace() + "/Pod/" + pod.name()
			}
			name += ", volume " + volume.text("name")
			if seen[name] {
				continue
			}
			seen[name] = true
			one, err := b.replaceInline(ctx, d, pod, volume)
			if err != nil {
				return nil, err
			}
			one.Name = name
			all = append(all, one)
		}
	}
	return all, nil
}

// replaceInline is a CSI volume in the pod where the driver has such (CSIDriver,
// volumeLifecycleModes), and a PersistentVolume with a claim where not.
func (b *beside) replaceInline(ctx context.Context, d *driver, pod *Object, volume tree) (Beside, error) {
	one := Beside{Kind: "inline volume", What: "the pod has a FlexVolume of " + d.config.FlexDriver + " without a PersistentVolume: there is nothing that could be replaced under it"}
	source := volume.sub("flexVolume")
	mapped, err := d.mapper.WithoutSecrets().Map(ctx, flex.Options{
		VolumeName: volume.text("name"), FSType: source.text("fsType"), User: source.pairs("options"),
		PodName: pod.name(), PodNamespace: pod.namespace(), PodUID: pod.uid(), ServiceAccountName: pod.text("spec", "serviceAccountName"),
	}, nil)
	if err != nil {
		one.Steps = []string{"the mapping makes no volume of it: " + err.Error()}
		return one, nil //nolint:nilerr // it is in the steps
	}
	object, err := b.w.get(ctx, csiDrivers(), "", d.config.CSIDriver)
	if err != nil {
		return one, err
	}
	if object != nil && slices.Contains(object.texts("spec", "volumeLifecycleModes"), "Ephemeral") {
		csi := tree{"driver": mapped.Driver}
		csi.put("fsType", mapped.FSType)
		csi.put("volumeAttributes", mapped.Context)
		csi.put("readOnly", source.at("readOnly"))
		one.Replacement = map[string]any{"name": volume.text("name"), "csi": map[string]any(csi)}
		one.Steps = []string{
			"the CSI driver takes volumes in pods: see in its documents which attributes name the volume, since there is no volumeHandle (here: " + mapped.Handle + ")",
			"change the pod's template; secrets go into nodePublishSecretRef, of the pod's namespace",
		}
		return one, nil
	}
	csi := tree{"driver": mapped.Driver, "volumeHandle": mapped.Handle}
	csi.put("fsType", mapped.FSType)
	csi.put("volumeAttributes", mapped.Context)
	spec := tree{
		"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteMany"}, "persistentVolumeReclaimPolicy": policyRetain,
		"storageClassName": "", "csi": map[string]any(csi),
	}
	spec.put("mountOptions", mapped.MountFlags)
	one.Replacement = map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": pod.namespace() + "-" + volume.text("name")}, "spec": map[string]any(spec),
	}
	one.Steps = []string{
		"make a PersistentVolume of it, with its size, its access modes and the Secrets that the CSI driver wants, and a claim with spec.volumeName in namespace " + pod.namespace(),
		"change the pod's template: persistentVolumeClaim instead of flexVolume",
	}
	return one, nil
}
