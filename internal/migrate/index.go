package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
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
	if d, err := all.of(o); d != nil && err == nil {
		if v, err := d.mapped(ctx, o, false); err == nil {
			h.become[v.Key()] = append(h.become[v.Key()], o.Name)
			h.share(o.Name, v.Key(), v.Context)
		}
	}
}

// handles are those of all volumes of this picture.
func (w *world) handles(ctx context.Context, all *drivers) (*handles, error) {
	return once(w, handlesKey, func() (*handles, error) {
		volumes, err := w.volumes(ctx, "")
		h := newHandles()
		for _, o := range volumes {
			h.add(ctx, all, o)
		}
		return h, err
	})
}

const handlesKey = "names by handle"

func newHandles() *handles {
	return &handles{are: map[csivol.Key][]string{}, become: map[csivol.Key][]string{}, shares: map[string][]string{}}
}

// recent are the handles that all rechecks of a run share. Each would list all volumes for them,
// ten at a time; plan has seen that they are unlike, and a minute is soon enough to see one that
// was created since.
type recent struct {
	mu sync.Mutex
	at time.Time
	*handles
}

const recentFor = time.Minute

// of lists again when it is time, and keeps no more of a volume than its name.
func (r *recent) of(ctx context.Context, c *objects.Client, all *drivers, now time.Time) (*handles, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handles != nil && now.Sub(r.at) < recentFor {
		return r.handles, nil
	}
	h := newHandles()
	err := c.Each(ctx, objects.PersistentVolumes().Resource, "", metav1.ListOptions{}, func(u *unstructured.Unstructured) error {
		o, err := asVolume(u)
		if err == nil {
			h.add(ctx, all, o)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.handles, r.at = h, now
	return h, nil
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
	names   map[string]*storagev1.VolumeAttachment
	volumes map[string][]*storagev1.VolumeAttachment     // by name of the PersistentVolume
	handles map[csivol.Key][]*storagev1.VolumeAttachment // of volumes without one
	nodes   []string                                     // that one is for
}

// of returns all that have to do with a volume: those that name its PersistentVolume, those that
// have its handle, and those that have the name by which the control plane would take them for
// its own on a node, whatever they attach.
func (x *attachmentIndex) of(volume string, key csivol.Key) []*storagev1.VolumeAttachment {
	all := slices.Concat(x.volumes[volume], x.handles[key])
	for _, node := range x.nodes {
		if o := x.names[attachment.Name(key.Handle, key.Driver, node)]; o != nil && !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	return all
}

func (w *world) attachments(ctx context.Context) (*attachmentIndex, error) {
	return once(w, "attachments by volume", func() (*attachmentIndex, error) {
		all, err := every(ctx, w, objects.VolumeAttachments())
		index := &attachmentIndex{map[string]*storagev1.VolumeAttachment{}, map[string][]*storagev1.VolumeAttachment{}, map[csivol.Key][]*storagev1.VolumeAttachment{}, nil}
		for _, o := range all {
			index.names[o.Name] = o
			index.nodes = append(index.nodes, o.Spec.NodeName)
			if name := volumeName(o); name != "" {
				index.volumes[name] = append(index.volumes[name], o)
			} else {
				key := csivol.Key{Driver: o.Spec.Attacher, Handle: attachment.Handle(o)}
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
