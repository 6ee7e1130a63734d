package migrate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// What is looked for by volume is looked up here: each list is gone through once for a
// plan, not once for each volume of it.

// csiVolumes are the names of the CSI PersistentVolumes by the volume that they are.
func (w *world) csiVolumes(ctx context.Context) (map[csivol.Key][]string, error) {
	return once(w, "names by handle", func() (map[csivol.Key][]string, error) {
		all, err := w.volumes(ctx, "")
		names := map[csivol.Key][]string{}
		for _, o := range all {
			if driver, handle := o.csi(); driver != "" {
				key := csivol.Key{Driver: driver, Handle: handle}
				names[key] = append(names[key], o.Name)
			}
		}
		return names, err
	})
}

// replacements are the names of all FlexVolumes by the volume that each would become. One
// that cannot be mapped is left out: its own check says so.
func (w *world) replacements(ctx context.Context, all *drivers) (map[csivol.Key][]string, error) {
	return once(w, "names by replacement", func() (map[csivol.Key][]string, error) {
		volumes, err := w.volumes(ctx, "")
		names := map[csivol.Key][]string{}
		for _, o := range volumes {
			d, err := all.of(o)
			if d == nil || err != nil {
				continue
			}
			if v, err := d.mapped(ctx, o, false); err == nil {
				names[v.Key()] = append(names[v.Key()], o.Name)
			}
		}
		return names, err
	})
}

// podsByUID are the pods of a namespace, or of all, also by the UIDs that static pods have
// for their kubelet.
func (w *world) podsByUID(ctx context.Context, namespace string) (map[string]*corev1.Pod, error) {
	return once(w, "pods by UID "+namespace, func() (map[string]*corev1.Pod, error) {
		all, err := listed(ctx, w, objects.Pods(), namespace, metav1.ListOptions{})
		pods := make(map[string]*corev1.Pod, len(all))
		for _, p := range all {
			for _, uid := range kubeobject.PodUIDs(p) {
				pods[uid] = p
			}
		}
		return pods, err
	})
}

// podsByClaim are the pods of a namespace that are not over, by the names of their claims.
func (w *world) podsByClaim(ctx context.Context, namespace string) (map[string][]*corev1.Pod, error) {
	return once(w, "pods by claim "+namespace, func() (map[string][]*corev1.Pod, error) {
		all, err := listed(ctx, w, objects.Pods(), namespace, metav1.ListOptions{})
		pods := map[string][]*corev1.Pod{}
		for _, p := range all {
			if kubeobject.PodFinished(p) {
				continue
			}
			for i := range p.Spec.Volumes {
				claim := kubeobject.ClaimName(p.Name, &p.Spec.Volumes[i])
				if claim != "" && !slices.Contains(pods[claim], p) {
					pods[claim] = append(pods[claim], p)
				}
			}
		}
		return pods, err
	})
}

// attachmentIndex are VolumeAttachments by what they are of.
type attachmentIndex struct {
	volumes map[string][]*storagev1.VolumeAttachment     // by name of the PersistentVolume
	handles map[csivol.Key][]*storagev1.VolumeAttachment // of volumes without one
}

func (w *world) attachments(ctx context.Context) (*attachmentIndex, error) {
	return once(w, "attachments by volume", func() (*attachmentIndex, error) {
		all, err := every(ctx, w, objects.VolumeAttachments())
		index := &attachmentIndex{map[string][]*storagev1.VolumeAttachment{}, map[csivol.Key][]*storagev1.VolumeAttachment{}}
		for _, o := range all {
			if name := volumeName(o); name != "" {
				index.volumes[name] = append(index.volumes[name], o)
			} else {
				key := csivol.Key{Driver: o.Spec.Attacher, Handle: attachment.Handle(o)}
				index.handles[key] = append(index.handles[key], o)
			}
		}
		return index, err
	})
}

// attachedTo are the nodes that have a volume in status.volumesAttached, by its unique name.
func (w *world) attachedTo(ctx context.Context) (map[corev1.UniqueVolumeName][]*corev1.Node, error) {
	return once(w, "nodes by attached volume", func() (map[corev1.UniqueVolumeName][]*corev1.Node, error) {
		all, err := every(ctx, w, objects.Nodes())
		nodes := map[corev1.UniqueVolumeName][]*corev1.Node{}
		for _, node := range all {
			for _, v := range node.Status.VolumesAttached {
				nodes[v.Name] = append(nodes[v.Name], node)
			}
		}
		return nodes, err
	})
}
