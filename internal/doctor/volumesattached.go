package doctor

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// checkVolumesAttached looks for volumes of the bridge's drivers that
// kube-controller-manager has attached without flex2csi controller. It detaches them with
// the vendor's driver, only by their names in status.volumesAttached
// (pkg/controller/volume/attachdetach/attach_detach_controller.go,
// populateActualStateOfWorld, Kubernetes v1.37.1).
func (p *probe) checkVolumesAttached(_ context.Context, n *notes) {
	nodes, err := p.nodes()
	if err != nil {
		n.skip("status.volumesAttached of the nodes", "%v", err)
		return
	}
	all, err := p.attachments()
	if err != nil {
		n.skip("who has attached what is in status.volumesAttached", "%v", err)
		return
	}
	served, ok := p.served()
	if !ok {
		n.skip("status.volumesAttached, for FlexVolume drivers without a VolumeAttachment of flex2csi", "which drivers the bridge serves is not known: --config")
		served = servedBy(all)
	}
	drivers, err := p.drivers()
	if err != nil {
		n.skip("which CSI drivers attach", "%v", err)
	}
	for i := range nodes {
		if wanted := p.node(); wanted == "" || wanted == nodes[i].Name {
			attachedByVendor(n, &nodes[i], served, all, drivers)
		}
	}
}

// servedBy returns the CSI drivers of VolumeAttachments by FlexVolume driver.
func servedBy(all []storagev1.VolumeAttachment) map[string][]string {
	served := map[string][]string{}
	for i := range all {
		if flexDriver := objects.AttachmentFlexDriver(&all[i]); objects.ManagedAttachment(&all[i]) && flexDriver != "" {
			served[flexDriver] = append(served[flexDriver], all[i].Spec.Attacher)
		}
	}
	return served
}

func attachedByVendor(n *notes, node *corev1.Node, served map[string][]string, all []storagev1.VolumeAttachment, drivers []storagev1.CSIDriver) {
	for _, attached := range node.Status.VolumesAttached {
		unique := string(attached.Name)
		at := strings.LastIndex(unique, "/")
		csiDrivers, ok := served[unique[:max(at, 0)]]
		if !ok {
			continue
		}
		driver, name := unique[:at], unique[at+1:]
		if ours(all, node.Name, driver, name) || ofController(attached.DevicePath) && slices.ContainsFunc(csiDrivers, func(name string) bool { return attachesNothing(drivers, name) }) {
			continue
		}
		n.add(volumeOfVendor, name, "kube-controller-manager has PersistentVolume %s attached to node %s with a driver %s of its own, and the bridge serves that driver", name, node.Name, driver).
			evidence("status.volumesAttached of the node has " + unique + " (" + attached.DevicePath + "), and there is no VolumeAttachment of flex2csi controller")
	}
}

// ours reports whether flex2csi controller has attached a volume.
func ours(all []storagev1.VolumeAttachment, node, driver, name string) bool {
	return slices.ContainsFunc(all, func(a storagev1.VolumeAttachment) bool {
		return objects.ManagedAttachment(&a) && objects.AttachedBy(&a) == objects.AttachedByController && a.Spec.NodeName == node &&
			objects.AttachmentFlexDriver(&a) == driver && objects.AttachmentPersistentVolume(&a) == name
	})
}

// ofController reports whether a device was returned by flex2csi controller, which makes
// no VolumeAttachment if the CSI driver needs none.
func ofController(device string) bool { return strings.HasPrefix(device, objects.DevicePrefix) }

// attachesNothing reports whether a CSI driver is known to need no attachments.
func attachesNothing(drivers []storagev1.CSIDriver, name string) bool {
	return slices.ContainsFunc(drivers, func(d storagev1.CSIDriver) bool { return d.Name == name && !ptr.Deref(d.Spec.AttachRequired, true) })
}
