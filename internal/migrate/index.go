package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// What is looked for by volume is looked up here: each list is gone through once for a
// plan, not once for each volume of it.

// handles are the names of the PersistentVolumes by the CSI volume that each is, or would become.
type handles struct {
	total       int
	are, become map[csivol.Key][]string
	shares      map[string][]string // by what volumes of one share have in common
}

// shareOf is what a volume has in common with others of its share: its attributes, where its
// handle has the name of the PersistentVolume in it to tell it apart. Empty: it is no share.
func shareOf(name string, key csivol.Key, attributes map[string]string) string {
	if len(attributes) == 0 || !strings.Contains(key.Handle, name) {
		return ""
	}
	return fmt.Sprint(key.Driver, attributes)
}

func (h *handles) share(name string, key csivol.Key, attributes map[string]string) {
	if share := shareOf(name, key, attributes); share != "" {
		h.shares[share] = append(h.shares[share], name)
	}
}

// add adds a volume. One that cannot be mapped is left out: its own check says so.
func (h *handles) add(ctx context.Context, all *drivers, o *volume) {
	h.total++
	if driver, handle := o.csi(); driver != "" {
		key := csivol.Key{Driver: driver, Handle: handle}
		h.are[key] = append(h.are[key], o.Name)
		h.share(o.Name, key, o.Spec.CSI.VolumeAttributes)
	}
	if d, err := all.find(o); d != nil && err == nil {
		if v, err := d.mapped(ctx, o, false); err == nil {
			h.become[v.Key()] = append(h.become[v.Key()], o.Name)
			h.share(o.Name, v.Key(), v.Context)
		}
	}
}

// handles returns which CSI volumes the PersistentVolumes are and become.
func (w *world) handles(ctx context.Context, all *drivers) (*handles, error) {
	return once(w, handlesKey, func() (*handles, error) {
		h := newHandles()
		return h, w.eachVolume(ctx, "", func(o *volume) { h.add(ctx, all, o) })
	})
}

const handlesKey = "names by handle"

func newHandles() *handles {
	return &handles{are: map[csivol.Key][]string{}, become: map[csivol.Key][]string{}, shares: map[string][]string{}}
}

// handlesLike returns the same of one CSI volume and of its share, and the number of all.
func (w *world) handlesLike(ctx context.Context, all *drivers, key csivol.Key, share string) (*handles, error) {
	if w.feeds == nil || !w.decides || !w.feeds.volumes().Recent(ctx) { // a plan lists them anyway
		return w.handles(ctx, all)
	}
	f := w.feeds.volumes()
	names := func(index, value string) (names []string) {
		for _, o := range f.By(index, value) {
			names = append(names, o.Name)
		}
		return names
	}
	h := newHandles()
	h.total = len(f.ListKeys())
	h.are[key], h.become[key] = names(isIndex, key.String()), names(becomesIndex, key.String())
	if share != "" {
		h.shares[share] = names(shareIndex, share)
	}
	return h, nil
}

// podsByUID are the pods of a namespace, or of all, also by the UIDs that static pods have
// for their kubelet.
func (w *world) podsByUID(ctx context.Context, namespace string) (map[string]*corev1.Pod, error) {
	return once(w, "pods by UID "+namespace, func() (map[string]*corev1.Pod, error) {
		all, err := listObjects(ctx, w, objects.Pods(), namespace, metav1.ListOptions{})
		pods := make(map[string]*corev1.Pod, len(all))
		for _, p := range all {
			for _, uid := range objects.PodUIDs(p) {
				pods[uid] = p
			}
		}
		return pods, err
	})
}

// podsByClaim are the pods of a namespace that are not over, by the names of their claims.
func (w *world) podsByClaim(ctx context.Context, namespace string) (map[string][]*corev1.Pod, error) {
	return once(w, "pods by claim "+namespace, func() (map[string][]*corev1.Pod, error) {
		all, err := w.podsOf(ctx, namespace)
		pods := map[string][]*corev1.Pod{}
		for _, p := range all {
			if objects.PodFinished(p) {
				continue
			}
			for i := range p.Spec.Volumes {
				claim := objects.ClaimName(p.Name, &p.Spec.Volumes[i])
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
	names   map[string]*storagev1.VolumeAttachment
	volumes map[string][]*storagev1.VolumeAttachment     // by name of the PersistentVolume
	handles map[csivol.Key][]*storagev1.VolumeAttachment // of volumes without one
	nodes   []string                                     // that one is for
}

// of returns all that have to do with a volume: those that name its PersistentVolume, those that
// have its handle, and those that have the name by which the control plane would take them for
// its own on a node, whatever they attach.
func (x *attachmentIndex) find(volume string, key csivol.Key) []*storagev1.VolumeAttachment {
	all := slices.Concat(x.volumes[volume], x.handles[key])
	for _, node := range x.nodes {
		if o := x.names[objects.AttachmentName(key.Handle, key.Driver, node)]; o != nil && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

func (w *world) attachments(ctx context.Context) (*attachmentIndex, error) {
	return once(w, "attachments by volume", func() (*attachmentIndex, error) {
		all, err := listAll(ctx, w, objects.VolumeAttachments())
		index := &attachmentIndex{map[string]*storagev1.VolumeAttachment{}, map[string][]*storagev1.VolumeAttachment{}, map[csivol.Key][]*storagev1.VolumeAttachment{}, nil}
		for _, o := range all {
			index.names[o.Name] = o
			index.nodes = append(index.nodes, o.Spec.NodeName)
			if name := volumeName(o); name != "" {
				index.volumes[name] = append(index.volumes[name], o)
			} else {
				key := csivol.Key{Driver: o.Spec.Attacher, Handle: objects.AttachmentHandle(o)}
				index.handles[key] = append(index.handles[key], o)
			}
		}
		index.nodes = compact(index.nodes)
		return index, err
	})
}

// attachedTo are the nodes that have a volume in status.volumesAttached, by its unique name.
func (w *world) attachedTo(ctx context.Context) (map[corev1.UniqueVolumeName][]*corev1.Node, error) {
	return once(w, "nodes by attached volume", func() (map[corev1.UniqueVolumeName][]*corev1.Node, error) {
		all, err := listAll(ctx, w, objects.Nodes())
		nodes := map[corev1.UniqueVolumeName][]*corev1.Node{}
		for _, node := range all {
			for _, v := range node.Status.VolumesAttached {
				nodes[v.Name] = append(nodes[v.Name], node)
			}
		}
		return nodes, err
	})
}
