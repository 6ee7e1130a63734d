package migrate

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// inline are volumes that pods have without a PersistentVolume. There is no
// object that could be replaced: the author of the pod has to write it in
// another way.
func (finder *related) inline(ctx context.Context, namespace string) (all []Related, err error) {
	found, err := listObjects(ctx, finder.w, objects.Pods(), namespace, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{} // by owner: its pods are alike
	for _, pod := range found {
		for _, volume := range objects.FlexVolumesInPod(pod) {
			if !finder.makers && !finder.drivers.has(volume.FlexVolume.Driver) {
				continue
			}
			owner, err := finder.w.owner(ctx, pod)
			if err != nil {
				return nil, err
			}
			name := pod.Namespace + "/" + owner
			if owner == "" {
				name = pod.Namespace + "/Pod/" + pod.Name
			}
			name += ", volume " + volume.Name
			if seen[name] {
				continue
			}
			seen[name] = true
			one, err := finder.replaceInline(ctx, pod, volume)
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
func (finder *related) replaceInline(ctx context.Context, pod *corev1.Pod, volume corev1.Volume) (Related, error) {
	one := Related{Kind: "inline volume", What: "the pod has a FlexVolume of " + volume.FlexVolume.Driver + " without a PersistentVolume: there is nothing that could be replaced under it"}
	source := volume.FlexVolume
	user := map[string]string{}
	maps.Copy(user, source.Options)
	options := flex.Options{
		VolumeName: volume.Name, FSType: source.FSType, User: user,
		PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: string(pod.UID), ServiceAccountName: pod.Spec.ServiceAccountName,
	}
	unmapped := func(err error) (Related, error) {
		one.Steps = []string{"the mapping makes no volume of it: " + err.Error()}
		return one, nil
	}
	d, err := finder.drivers.chosen(source.Driver, options)
	if err != nil {
		return unmapped(err)
	}
	mapped, err := d.mapper.WithoutSecrets().Map(ctx, options, nil)
	if err != nil {
		return unmapped(err)
	}
	object, err := get(ctx, finder.w, objects.CSIDrivers(), "", d.config.CSIDriver)
	if err != nil {
		return one, err
	}
	if object != nil && slices.Contains(object.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral) {
		csi := map[string]any{"driver": mapped.Driver}
		put(csi, "fsType", mapped.FSType)
		put(csi, "volumeAttributes", mapped.Context)
		if source.ReadOnly {
			csi["readOnly"] = true
		}
		one.Replacement = map[string]any{"name": volume.Name, "csi": csi}
		one.Steps = []string{
			"the CSI driver takes volumes in pods: see in its documents which attributes name the volume, since there is no volumeHandle (here: " + mapped.Handle + ")",
			"change the pod's template; secrets go into nodePublishSecretRef, of the pod's namespace",
		}
		return one, nil
	}
	one.Replacement, one.Steps = d.inlineVolume(mapped, pod, volume)
	return one, nil
}

// inlineVolume returns a PersistentVolume to be filled in for an inline volume, and what else is
// to be done.
func (d *driver) inlineVolume(mapped *csivol.Volume, pod *corev1.Pod, volume corev1.Volume) (replacement map[string]any, steps []string) {
	csi := map[string]any{"driver": mapped.Driver, "volumeHandle": mapped.Handle}
	put(csi, "fsType", mapped.FSType)
	put(csi, "volumeAttributes", mapped.Context)
	var secrets rendered
	d.renderSecrets(&secrets, withSecret(pod, volume.FlexVolume), csi)
	spec := map[string]any{
		"capacity": map[string]any{"storage": "1Gi"}, "accessModes": []any{"ReadWriteMany"}, "persistentVolumeReclaimPolicy": policyRetain,
		"storageClassName": "", "csi": csi,
	}
	put(spec, "mountOptions", mapped.MountFlags)
	replacement = map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": pod.Namespace + "-" + volume.Name}, "spec": spec,
	}
	steps = []string{
		"make a PersistentVolume of it, with its size, its access modes and any other Secret that the CSI driver wants, and a claim with spec.volumeName in namespace " + pod.Namespace,
		"change the pod's template: persistentVolumeClaim instead of flexVolume",
	}
	for _, s := range secrets.secrets {
		if s.From != s.To && len(s.Keys) > 0 {
			steps = append(steps, "make Secret "+s.To+" of Secret "+s.From+", with the keys that secrets of the configuration names")
		}
	}
	return replacement, steps
}

// withSecret is the part of a PersistentVolume that says which Secret an inline volume has:
// one of the pod's namespace.
func withSecret(pod *corev1.Pod, source *corev1.FlexVolumeSource) *volume {
	flex := &corev1.FlexPersistentVolumeSource{Driver: source.Driver}
	if source.SecretRef != nil {
		flex.SecretRef = &corev1.SecretReference{Namespace: pod.Namespace, Name: source.SecretRef.Name}
	}
	return &volume{PersistentVolume: &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{FlexVolume: flex}}}}
}
