// Package controller is the controller of flex2csi: it attaches volumes with
// attach:true, and deletes VolumeAttachments that have become useless.
//
// [Controller] answers attach, isattached and detach for all nodes. It has no state of
// its own: the labels of the VolumeAttachments (package attachment) are its record, so
// that it may be killed at any time, and another controller continues. [Sweeper] checks
// all VolumeAttachments of flex2csi and deletes those without an owner; state.go has
// their states.
package controller

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An Attacher creates and deletes VolumeAttachments of any node. Its calls end in time
// to say what they were waiting for.
type Attacher interface {
	Attach(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error)
	// Detach deletes a VolumeAttachment that flex2csi has made on any node, unless
	// it was handed over to the control plane.
	Detach(ctx context.Context, a *csivol.Attachment) error
	Lost(a *csivol.Attachment) (bool, error)
}

// A Cluster answers questions by asking the API server.
type Cluster interface {
	// FindAttachments returns ours of a PersistentVolume on a node.
	FindAttachments(ctx context.Context, persistentVolume, node string) ([]storagev1.VolumeAttachment, error)
	// GetAttachment returns any VolumeAttachment by name; nil if there is none.
	GetAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
	// GetNode returns nil if there is none.
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	// PersistentVolume returns one, as it was seen lately unless fresh; its error
	// is NotFound if there is none.
	PersistentVolume(ctx context.Context, name string, fresh bool) (*csivol.PersistentVolume, error)
}

// A Controller answers kube-controller-manager.
type Controller struct {
	Drivers  bridge.Drivers
	Attacher Attacher
	Cluster  Cluster

	turns turns
}

// Callouts returns those of one Flex driver, for flex.Run. Volumes of a driver
// that the configuration no longer has can be detached: that needs no configuration.
func (c *Controller) Callouts(name string) (*flex.Driver, error) {
	return &flex.Driver{Handle: func(ctx context.Context, call *flex.Call) (flex.DriverStatus, error) {
		return c.handle(ctx, name, call)
	}}, nil
}

func (c *Controller) handle(ctx context.Context, flexDriver string, call *flex.Call) (answer flex.DriverStatus, err error) {
	answer = flex.Success()
	switch call.Command {
	case flex.CommandDetach:
		return answer, c.detach(ctx, flexDriver, call)
	case flex.CommandAttach, flex.CommandIsAttached:
	default: // never "Not supported": the caller would remember it
		return answer, flex.Errorf(flex.CodeFailedPrecondition, "%s is for the daemon of the node, and this is flex2csi controller; look at socket in the configuration of the driver (.flexdriver.json)", call.Command)
	}
	if c.Drivers.First(flexDriver) == nil {
		return answer, flex.Errorf(flex.CodeFailedPrecondition, "the configuration of flex2csi controller has no driver %s; add it and restart the controller", flexDriver)
	}
	if call.Command == flex.CommandAttach {
		answer.Device, err = c.attach(ctx, flexDriver, call)
		return answer, err
	}
	attached, err := c.isAttached(ctx, flexDriver, call)
	answer.Attached = &attached
	return answer, err
}

// attach creates the attachment and waits for it. It undoes nothing after an error:
// kube-controller-manager then marks the volume as uncertain, and calls attach again or
// detach (pkg/volume/util/operationexecutor/operation_generator.go,
// GenerateAttachVolumeFunc, Kubernetes v1.37.1).
func (c *Controller) attach(ctx context.Context, flexDriver string, call *flex.Call) (string, error) {
	d, v, err := c.volume(ctx, flexDriver, call)
	if err != nil {
		return "", err
	}
	device := bridge.DeviceName(v)
	if wanted, err := wantsAttach(ctx, d); err != nil || !wanted {
		return device, err
	}
	if err := d.AttacherSuffices(); err != nil {
		return "", err
	}
	if err := d.RequirePod(ctx, v, call.NodeName); err != nil {
		return "", err
	}
	end, err := c.turns.wait(ctx, turn{call.VolumeName, call.NodeName})
	if err != nil {
		return "", err
	}
	defer end()
	got, err := c.Attacher.Attach(ctx, attachmentOf(d, v, call.NodeName))
	if err == nil && got.Name != "" && got.Name != v.Name {
		err = another(v, got, call.NodeName)
	}
	return device, err
}

// volume returns the volume that the options of a call name, and its driver.
func (c *Controller) volume(ctx context.Context, flexDriver string, call *flex.Call) (*bridge.FlexDriver, *csivol.Volume, error) {
	d, v, err := c.Drivers.Volume(ctx, flexDriver, call.Options)
	if err == nil {
		volumelog.Learn(ctx, volumelog.Subject{CSIDriver: v.Driver, VolumeHandle: v.Handle})
	}
	return d, v, err
}

// another returns the error for two PersistentVolumes with one volume.
// kube-controller-manager sees two volumes, and the detach of one would detach the
// other, too.
func another(v *csivol.Volume, got csivol.Attached, node string) error {
	return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolumes %s and %s are the same volume %s, and node %s has it as %s (VolumeAttachment %s): with attach: true one of them can be on a node", v.Name, got.Name, csivol.Key{Driver: v.Driver, Handle: v.Handle}, node, got.Name, got.Object)
}

// wantsAttach reports whether the driver's volumes are attached. The controller cannot
// ask the driver, so without an answer it attaches, as the kubelet does
// (pkg/volume/csi/csi_plugin.go, CanAttach).
func wantsAttach(ctx context.Context, d *bridge.FlexDriver) (bool, error) {
	switch d.Attach {
	case bridgeconfig.AttachNone:
		return false, nil
	case bridgeconfig.AttachVA:
		return true, nil
	case bridgeconfig.AttachController:
		return false, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through the socket of its controller (attach: Controller), which the daemon of a node can do and flex2csi controller cannot; say attach: VolumeAttachment", d.Name)
	}
	if d.Policy == nil {
		return true, nil
	}
	p, err := d.Policy(ctx)
	return p.Attach != bridge.NeedNoAttach, err
}

// attachmentOf returns the attachment of a volume to a node.
func attachmentOf(d *bridge.FlexDriver, v *csivol.Volume, node string) *csivol.Attachment {
	return &csivol.Attachment{
		Driver: v.Driver, Handle: v.Handle, Node: node, FlexDriver: v.FlexDriver, Name: v.Name,
		Context: v.Context, FSType: v.FSType, MountFlags: v.MountFlags, AccessModes: csivol.Attachable(v.AccessModes, v.AccessMode),
		Secret: d.AttachSecret,
	}
}

// isAttached answers from the informers. It asks the API server before it answers "no",
// and if they have not synced: after a "no" kube-controller-manager attaches the volume
// again, and after an error it checks no volume of the node for a minute
// (pkg/volume/flexvolume/attacher.go, VolumesAreAttached, Kubernetes v1.37.1).
func (c *Controller) isAttached(ctx context.Context, flexDriver string, call *flex.Call) (bool, error) {
	d, v, err := c.volume(ctx, flexDriver, call)
	if err != nil {
		return c.isGone(ctx, call.Options.VolumeName, err)
	}
	if wanted, err := wantsAttach(ctx, d); err != nil || !wanted {
		return err == nil, err
	}
	a := attachmentOf(d, v, call.NodeName)
	if lost, err := c.Attacher.Lost(a); err == nil && !lost {
		return true, nil
	}
	if !v.Inline {
		if gone, err := c.isGone(ctx, v.Name, nil); err != nil || gone {
			return gone, err
		}
	}
	found, err := c.Cluster.GetAttachment(ctx, objects.AttachmentName(a.Handle, a.Driver, a.Node))
	if err != nil {
		return false, err
	}
	return found != nil && found.Status.Attached && found.Spec.NodeName == a.Node, nil
}

// isGone reports whether the FlexVolume no longer exists, and returns otherwise if it
// does. If not, isattached answers "yes", which changes nothing: detach comes when the
// pod was deleted. If it has become a CSI volume the control plane may have deleted the
// attachment just now; a "no" would attach the FlexVolume once more.
func (c *Controller) isGone(ctx context.Context, name string, otherwise error) (bool, error) {
	pv, err := c.Cluster.PersistentVolume(ctx, name, true)
	switch {
	case err != nil && flex.CodeOf(err) == flex.CodeNotFound:
		return true, nil
	case err != nil:
		return false, err
	case pv.CSI != csivol.Key{}:
		return true, nil
	}
	return false, otherwise
}

// detach deletes the VolumeAttachment. The PersistentVolume may no longer exist, and
// the configuration may no longer have the driver.
func (c *Controller) detach(ctx context.Context, flexDriver string, call *flex.Call) error {
	end, err := c.turns.wait(ctx, turn{call.VolumeName, call.NodeName})
	if err != nil {
		return err
	}
	defer end()
	all, err := c.Cluster.FindAttachments(ctx, call.VolumeName, call.NodeName)
	if err != nil {
		return err
	}
	for i := range all {
		if objects.AttachmentFlexDriver(&all[i]) != flexDriver {
			continue
		}
		volumelog.Learn(ctx, subject(&all[i]))
		if err := c.requireUnused(ctx, flexDriver, call); err != nil {
			return err
		}
		if err := c.Attacher.Detach(ctx, objects.AttachmentVolume(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

// requireUnused refuses to detach a volume that the kubelet still has mounted: data
// that was not written back would be lost. kube-controller-manager checks that, too,
// but not for a node that was not ready for six minutes or is out of service
// (pkg/controller/volume/attachdetach/reconciler/reconciler.go, reconcile). A node that
// is ready again and still has that taint is alive.
func (c *Controller) requireUnused(ctx context.Context, flexDriver string, call *flex.Call) error {
	n, err := c.Cluster.GetNode(ctx, call.NodeName)
	if err != nil {
		return err
	}
	if n == nil || !objects.NodeReady(n) || !objects.VolumeInUse(n, objects.FlexVolumeName(flexDriver, call.VolumeName)) {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is in use on node %s, which is ready, and is not detached; it will be when the kubelet there has unmounted it", call.VolumeName, call.NodeName)
}
