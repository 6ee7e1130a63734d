package migrate

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// reattach is for the way back under running pods. A VolumeAttachment that the
// control plane has made since the migration names the PersistentVolume, and the
// external-attacher can never detach what names one that is no CSI volume
// (pkg/controller/csi_handler.go, csiDetach, external-attacher v4.12.0). So it is
// replaced by one of the same name that says itself what it attaches, as the
// bridge's do. Nothing is detached by that: without its finalizer the attacher
// sees it go and does nothing, and the new one is attached by a repetition. The
// control plane looks by the name, and goes on with the new one.
func (m *migration) reattach(ctx context.Context) error {
	w := m.world()
	driver, err := get(ctx, w, objects.CSIDrivers(), "", m.rec.CSIDriver)
	if err != nil || !attaches(driver) || objects.PanicsAtAttachments(m.rec.CSIDriver) {
		return err
	}
	attached, err := m.attachments(ctx, w)
	if err != nil {
		return err
	}
	on := m.nodesOfPods()
	for _, va := range attached {
		if node := va.Spec.NodeName; volumeName(va) != "" && !slices.Contains(on, node) {
			return terminal("PersistentVolume %s is not taken back: it is still attached to node %s, where no pod uses it (VolumeAttachment %s); resume when it is detached", m.rec.Volume, node, va.Name)
		}
	}
	for _, node := range on {
		if err := m.reattachTo(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// leftByRollback reports whether a VolumeAttachment that names a FlexVolume's PersistentVolume
// is one that reattach leaves as it is. Nothing keeps it when it is deleted: the
// external-attacher puts its finalizer on before it attaches, and for a driver without
// PUBLISH_UNPUBLISH_VOLUME it only says that the volume is attached
// (pkg/controller/trivial_handler.go, external-attacher v4.12.0).
func leftByRollback(va *storagev1.VolumeAttachment) bool {
	return objects.PanicsAtAttachments(va.Spec.Attacher) && va.Status.Attached && len(va.Finalizers) == 0
}

// nodesOfPods are the nodes of the pods of the beginning.
func (m *migration) nodesOfPods() (all []string) {
	for _, p := range m.rec.Pods {
		if p.Node != "" && !slices.Contains(all, p.Node) {
			all = append(all, p.Node)
		}
	}
	return all
}

func (m *migration) reattachTo(ctx context.Context, node string) error {
	name := objects.AttachmentName(m.rec.VolumeHandle, m.rec.CSIDriver, node)
	va, err := objects.VolumeAttachments().Get(ctx, m.c, "", name)
	switch {
	case err != nil:
		return err
	case va != nil && va.DeletionTimestamp != nil:
		return terminal("PersistentVolume %s is not taken back: it is being detached from node %s (VolumeAttachment %s); resume when that is over", m.rec.Volume, node, name)
	case va != nil && volumeName(va) == "":
		return nil
	case va != nil:
		if err := m.removeAttachment(ctx, va); err != nil {
			return err
		}
	}
	inline, err := m.inlineAttachment(ctx, name, node)
	if err != nil {
		return err
	}
	if err := m.checkLease(); err != nil {
		return err
	}
	if _, err := m.c.Create(ctx, objects.VolumeAttachments().Resource, inline); err != nil && objects.OutcomeOf(err) != objects.Exists {
		return err
	}
	return m.wait(ctx, waitFor{
		what: "the external-attacher", resource: objects.VolumeAttachments().Resource, name: name,
		look: func(ctx context.Context) (string, error) { // a watch may begin with the one that is gone
			va, err := objects.VolumeAttachments().Get(ctx, m.c, "", name)
			switch {
			case err != nil:
				return "", err
			case va != nil && (va.DeletionTimestamp != nil || volumeName(va) != ""):
				return "", terminal("PersistentVolume %s is not taken back: VolumeAttachment %s to node %s is being deleted, or was created again by the control plane; resume", m.rec.Volume, name, node)
			case va != nil && va.Status.Attached:
				return "", nil
			}
			return "VolumeAttachment " + name + " to node " + node + " is not attached yet", nil
		},
	})
}

// removeAttachment takes one away without having its volume detached: it goes as
// it is without its finalizer, or not at all.
func (m *migration) removeAttachment(ctx context.Context, va *storagev1.VolumeAttachment) error {
	bare, err := m.patch(ctx, m.c, objects.VolumeAttachments().Resource, "", va.Name, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"uid": va.UID, "finalizers": nil},
	})
	if err != nil {
		return err
	}
	if err := m.checkLease(); err != nil {
		return err
	}
	err = m.c.Delete(ctx, objects.VolumeAttachments().Resource, "", va.Name, metav1.Preconditions{UID: &va.UID, ResourceVersion: new(bare.GetResourceVersion())})
	if objects.OutcomeOf(err) == objects.Gone {
		return nil
	}
	return err
}

// inlineAttachment attaches what the PersistentVolume says, without naming it.
func (m *migration) inlineAttachment(ctx context.Context, name, node string) (*unstructured.Unstructured, error) {
	pv, err := m.getOld(ctx)
	if err != nil {
		return nil, err
	}
	inline := map[string]any{}
	for _, field := range []string{"csi", "accessModes", "mountOptions", "volumeMode"} {
		if value := sub(pv.object, "spec")[field]; value != nil {
			inline[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"attacher": m.rec.CSIDriver, "nodeName": node, "source": map[string]any{"inlineVolumeSpec": inline}},
	}}, nil
}
