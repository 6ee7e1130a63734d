package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// kube-controller-manager lists in status.volumesAttached of a node what it has
// attached there. When it starts it takes that list for what is attached and
// detaches what no pod wants, by the name alone
// (pkg/controller/volume/attachdetach/attach_detach_controller.go,
// populateActualStateOfWorld, Kubernetes v1.37.1). No pod wants a FlexVolume that
// has become a CSI volume. volumesInUse does not protect it: the kubelet lists
// there only what its own driver attaches, and a driver that is bridged with
// attach: false is not among that. So a volume that a vendor's driver has attached
// is not replaced under a pod. flex2csi controller leaves alone what the
// control plane has adopted, and may have attached it.

// detachTime is how long a detach may go on that cannot be seen, since the entry was first
// missed by who knows of it or has not looked before:
// kube-controller-manager removes the entry before it calls the driver
// (pkg/controller/volume/attachdetach/reconciler/reconciler.go, reconcile,
// Kubernetes v1.37.1).
const detachTime = 10 * time.Second

// watchFor is several rounds of kube-controller-manager, which makes one each
// 100 ms (pkg/controller/volume/attachdetach/attach_detach_controller.go,
// DefaultTimerConfig, Kubernetes v1.37.1).
const watchFor = 500 * time.Millisecond

// A flexVolume is a FlexVolume, and the CSI volume that it is or becomes.
type flexVolume struct {
	driver, name      string
	csiDriver, handle string
}

// unique returns what the volume is called in the status of nodes.
func (v flexVolume) unique() corev1.UniqueVolumeName {
	return objects.FlexVolumeName(v.driver, v.name)
}

// attachedByVendor returns the nodes to which kube-controller-manager has attached
// the FlexVolume, and not by flex2csi controller.
func (w *world) attachedByVendor(ctx context.Context, v flexVolume) (on []string, err error) {
	all, err := w.attachedTo(ctx)
	if err != nil {
		return nil, err
	}
	for _, node := range all[v.unique()] {
		ours, err := w.attachedByController(ctx, v, node)
		if err != nil {
			return nil, err
		}
		if !ours {
			on = append(on, node.Name)
		}
	}
	return on, nil
}

// attachedByController reports whether flex2csi controller has attached a
// volume to a node. Where the CSI driver attaches nothing it makes no
// VolumeAttachment, and the device is what it has answered.
func (w *world) attachedByController(ctx context.Context, v flexVolume, node *corev1.Node) (bool, error) {
	driver, err := get(ctx, w, objects.CSIDrivers(), "", v.csiDriver)
	if err != nil {
		return false, err
	}
	if !attaches(driver) {
		return slices.ContainsFunc(node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool {
			return a.Name == v.unique() && a.DevicePath == objects.DevicePrefix+v.handle
		}), nil
	}
	all, err := w.attachments(ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all.handles[csivol.Key{Driver: v.csiDriver, Handle: v.handle}], func(o *storagev1.VolumeAttachment) bool {
		return o.Name == objects.AttachmentName(v.handle, v.csiDriver, node.Name) &&
			objects.ManagedAttachment(o) && objects.AttachedBy(o) == objects.AttachedByController &&
			o.Spec.NodeName == node.Name
	}), nil
}

// byVendor says what the status of a node has.
func byVendor(node string) string {
	return "status.volumesAttached of node " + node + " has it, and no VolumeAttachment of flex2csi controller: a vendor's FlexVolume driver in kube-controller-manager has attached it"
}

// flexVolume is the volume of the record.
func (m *migration) flexVolume() flexVolume {
	return flexVolume{m.rec.FlexDriver, m.rec.Volume, m.rec.CSIDriver, m.rec.VolumeHandle}
}

// findVendor says where a vendor's driver still has the volume attached, or may
// still be at detaching it.
func (m *migration) findVendor(ctx context.Context, w *world) (string, error) {
	on, err := w.attachedByVendor(ctx, m.flexVolume())
	switch {
	case err != nil:
		return "", err
	case len(on) > 0:
		m.rec.ByVendor, m.released = true, time.Time{}
		return byVendor(on[0]) + "; apply waits until kube-controller-manager has detached it. If it no longer has the driver, remove the entry (docs/migrate.md, A vendor's driver in kube-controller-manager)", nil
	case !m.rec.ByVendor && m.acceptedVersion != "": // plan, accept and all looks since have seen nothing
		return "", nil
	case m.released.IsZero():
		m.released = m.r.Now()
	}
	if m.r.Now().Sub(m.released) < detachTime {
		return "kube-controller-manager may still be detaching it", nil
	}
	return "", nil
}

// waitUntilIdle is waitForNodes for a volume that no pod has had: one that has come has to be accepted, too.
func (m *migration) waitUntilIdle(ctx context.Context) error {
	var come []*corev1.Pod
	err := m.wait(ctx, waitFor{
		what: "PersistentVolume " + m.rec.Volume,
		look: func(ctx context.Context) (string, error) {
			held, err := m.findHolder(ctx)
			if held == "" || err != nil {
				return "", err
			}
			if come, err = m.listUsers(ctx); slices.ContainsFunc(come, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }) {
				return "", err
			}
			come = nil
			return held, err
		},
	})
	if err == nil && len(come) > 0 {
		return retryable{fmt.Errorf("%s has come meanwhile", names(come))}
	}
	return err
}

// checkUnattached watches the nodes of the pods for a moment. A
// kube-controller-manager without the driver removes the entry and writes it again
// all the time, so that a single look may miss it; another replica may still have
// the driver.
func (m *migration) checkUnattached(ctx context.Context) error {
	w := m.world()
	for _, name := range m.nodesOfPods() {
		seen, err := m.watchAttached(ctx, w, name)
		if err != nil {
			return err
		}
		if seen {
			return terminal("PersistentVolume %s is not replaced: %s; resume when that is otherwise, or roll back", m.rec.Volume, byVendor(name))
		}
	}
	return nil
}

// watchAttached watches one of them. A watch that ends says nothing of the entry: the next one begins
// with the node as it is.
func (m *migration) watchAttached(ctx context.Context, w *world, name string) (bool, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var since string // the watch begins with what was changed since the feed was as it is
	if f := liveFeed(ctx, m.r.feeds(), objects.Nodes(), "", metav1.ListOptions{}); f != nil {
		since = f.Version()
		if node := f.Find("", name); node == nil {
			since = ""
		} else if seen, err := m.isAttachedOn(ctx, w, node); seen || err != nil {
			return seen, err
		}
	}
	seen, err := m.watchAttachedSince(watching, w, name, since)
	if errors.Is(err, errWatchEnded) && since != "" {
		seen, err = m.watchAttachedSince(watching, w, name, "")
	}
	if errors.Is(err, errWatchEnded) {
		err = retryable{err}
	}
	return seen, err
}

var errWatchEnded = errors.New("the watch has ended")

func (m *migration) watchAttachedSince(ctx context.Context, w *world, name, since string) (bool, error) {
	events, err := m.c.Watch(ctx, objects.Nodes().Resource, "", name, since)
	if err != nil {
		return false, err
	}
	for over := time.After(watchFor); ; {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-over:
			return false, nil
		case e, ok := <-events:
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			if !ok || e.Type == watch.Error {
				return false, fmt.Errorf("watch node %s: %w", name, errWatchEnded)
			}
			object, isNode := e.Object.(*unstructured.Unstructured)
			if !isNode || (e.Type != watch.Added && e.Type != watch.Modified) {
				return false, nil // checkNode looks whether it is there
			}
			node, err := objects.As[corev1.Node](object)
			if err != nil {
				return false, err
			}
			if node.Name != name {
				continue
			}
			if seen, err := m.isAttachedOn(ctx, w, node); seen || err != nil {
				return seen, err
			}
		}
	}
}

// isAttachedOn reports whether a vendor's driver has attached the volume by what a node says.
func (m *migration) isAttachedOn(ctx context.Context, w *world, node *corev1.Node) (bool, error) {
	if !objects.VolumeAttached(node, m.flexVolume().unique()) {
		return false, nil
	}
	ours, err := w.attachedByController(ctx, m.flexVolume(), node)
	return err == nil && !ours, err
}

// checkVendor looks once more for a vendor's driver where another process has
// accepted the swap, which may be long ago. What there was is put back then: a
// FlexVolume that its pods want is not detached.
func (m *migration) checkVendor(ctx context.Context) error {
	if m.acceptedVersion != "" || m.rec.Direction != journal.ToCSI {
		return nil
	}
	on, err := m.world().attachedByVendor(ctx, m.flexVolume())
	if err == nil && len(on) > 0 {
		err = terminal("%s", byVendor(on[0]))
	}
	return err
}
