package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// reattach is for the way back under running pods. A VolumeAttachment that the
// control plane has made since the migration names the PersistentVolume, and the
// external-attacher can never detach what names one that is no CSI volume
// (pkg/controller/csi_handler.go, csiDetach, external-attacher v4.12.0). So it is
// replaced by one of the same name that says itself what it attaches, as the
// bridge's do. Nothing is detached by that: without its finalizer the attacher
// sees it go and does nothing, and the new one is attached by a repetition. The
// control plane looks by the name, and goes on with the new one.
func (o *one) reattach(ctx context.Context) error {
	w := newWorld(o.c)
	driver, err := w.get(ctx, csiDrivers(), "", o.rec.CSIDriver)
	if err != nil || !(&judge{driver: driver}).attaches() {
		return err
	}
	attached, err := o.attachments(ctx, w)
	if err != nil {
		return err
	}
	on := o.nodesOfPods()
	for _, va := range attached {
		if node := va.text("spec", "nodeName"); va.has("spec", "source", "persistentVolumeName") && !slices.Contains(on, node) {
			return surprised("PersistentVolume %s is not taken back: it is still attached to node %s, where no pod uses it (VolumeAttachment %s); resume when it is detached", o.rec.Volume, node, va.name())
		}
	}
	for _, node := range on {
		if err := o.reattachTo(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// nodesOfPods are the nodes of the pods of the beginning.
func (o *one) nodesOfPods() (all []string) {
	for _, p := range o.rec.Pods {
		if p.Node != "" && !slices.Contains(all, p.Node) {
			all = append(all, p.Node)
		}
	}
	return all
}

func (o *one) reattachTo(ctx context.Context, node string) error {
	name := attachment.Name(o.rec.VolumeHandle, o.rec.CSIDriver, node)
	va, err := o.get(ctx, attachments(), "", name)
	switch {
	case err != nil:
		return err
	case va != nil && va.deleting():
		return surprised("PersistentVolume %s is not taken back: it is being detached from node %s (VolumeAttachment %s); resume when that is over", o.rec.Volume, node, name)
	case va != nil && !va.has("spec", "source", "persistentVolumeName"):
		return nil
	case va != nil:
		if err := o.removeAttachment(ctx, va); err != nil {
			return err
		}
	}
	body, err := o.inlineAttachment(ctx, name, node)
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	if _, err := o.c.CreateObject(ctx, attachments(), "", body); err != nil && !errors.Is(err, clusterview.ErrExists) {
		return err
	}
	return o.wait(ctx, waitFor{
		what: "the external-attacher", resource: attachments(), name: name,
		look: func(ctx context.Context) (string, error) { // a watch may begin with the one that is gone
			va, err := o.get(ctx, attachments(), "", name)
			switch {
			case err != nil:
				return "", err
			case va != nil && (va.deleting() || va.has("spec", "source", "persistentVolumeName")):
				return "", surprised("PersistentVolume %s is not taken back: VolumeAttachment %s to node %s is being deleted, or was made anew by the control plane; resume", o.rec.Volume, name, node)
			case va != nil && va.truth(false, "status", "attached"):
				return "", nil
			}
			return "VolumeAttachment " + name + " to node " + node + " is not attached yet", nil
		},
	})
}

// removeAttachment takes one away without having its volume detached: it goes as
// it is without its finalizer, or not at all.
func (o *one) removeAttachment(ctx context.Context, va *Object) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": va.uid(), "finalizers": nil}})
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	stored, err := o.c.PatchObject(ctx, attachments(), "", va.name(), clusterview.MergePatch, patch)
	if err != nil {
		return err
	}
	bare, err := ParseObject(stored)
	if err != nil {
		return err
	}
	err = o.c.DeleteObject(ctx, attachments(), "", va.name(), clusterview.Preconditions{UID: va.uid(), ResourceVersion: bare.text("metadata", "resourceVersion")})
	if errors.Is(err, clusterview.ErrGone) {
		return nil
	}
	return err
}

// inlineAttachment attaches what the PersistentVolume says, without naming it.
func (o *one) inlineAttachment(ctx context.Context, name, node string) ([]byte, error) {
	pv, err := o.from(ctx)
	if err != nil {
		return nil, err
	}
	inline := tree{"csi": clone(pv.at("spec", "csi"))}
	for _, field := range []string{"accessModes", "mountOptions", "volumeMode"} {
		if pv.has("spec", field) {
			inline[field] = clone(pv.at("spec", field))
		}
	}
	return encode(map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"attacher": o.rec.CSIDriver, "nodeName": node,
			"source": map[string]any{"inlineVolumeSpec": map[string]any(inline)},
		},
	})
}
