// Package kubeobject answers questions about objects of Kubernetes that more than
// one part of flex2csi asks, as Kubernetes' own code answers them.
package kubeobject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// CSIVolumeName is the unique name of a CSI volume in the status of nodes; with an
// empty handle it is the prefix of all volumes of the driver
// (pkg/volume/csi/csi_plugin.go, GetVolumeName; pkg/volume/util/util.go,
// GetUniqueVolumeName, Kubernetes v1.37.1).
func CSIVolumeName(driver, volumeHandle string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + volumeHandle)
}

// FlexVolumeName is the unique name of a FlexVolume with attach:true in the status of
// nodes. Name is that of the PersistentVolume, or of an inline volume
// (pkg/volume/util/util.go, GetUniqueVolumeName; pkg/volume/flexvolume/plugin.go,
// GetPluginName and GetVolumeName, Kubernetes v1.37.1).
func FlexVolumeName(driver, name string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(driver + "/" + name)
}

// VolumeInUse reports whether the kubelet of a node says that it uses a volume.
func VolumeInUse(n *corev1.Node, name corev1.UniqueVolumeName) bool {
	return slices.Contains(n.Status.VolumesInUse, name)
}

// VolumeAttached reports whether the control plane says that it has attached a volume
// to a node.
func VolumeAttached(n *corev1.Node, name corev1.UniqueVolumeName) bool {
	return slices.ContainsFunc(n.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == name })
}

// NodeReady reports whether a node has the condition Ready.
func NodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// ControllerAttaches is how a kubelet says on its Node that it leaves attaching to the control
// plane (enableControllerAttachDetach; pkg/volume/util/util.go, ControllerManagedAttachAnnotation,
// Kubernetes v1.37.1).
const ControllerAttaches = "volumes.kubernetes.io/controller-managed-attach-detach"

// AttachesItself reports whether the kubelet of a node attaches by itself, as on ACK. It does not
// do that for CSI drivers.
func AttachesItself(n *corev1.Node) bool { return n.Annotations[ControllerAttaches] != "true" }

// NodeOutOfService reports whether a person or a controller has declared a node dead.
func NodeOutOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// PodFinished reports whether no container of a pod runs or will run.
func PodFinished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// ConfigHash is the annotation with the UID that a kubelet has for a static pod
// (pkg/kubelet/types/pod_update.go, ConfigHashAnnotationKey, Kubernetes v1.37.1).
const ConfigHash = "kubernetes.io/config.hash"

// PodUIDs are the UIDs by which the kubelet may call a pod: a static pod has another
// one there than in the API server.
func PodUIDs(p *corev1.Pod) []string {
	uids := []string{string(p.UID)}
	if uid := p.Annotations[ConfigHash]; uid != "" {
		uids = append(uids, uid)
	}
	return uids
}

// ClaimName is the name of the PersistentVolumeClaim of a pod's volume, in the pod's
// namespace; empty if the volume has none. The claim of a generic ephemeral volume is
// called after pod and volume (k8s.io/component-helpers/storage/ephemeral,
// VolumeClaimName).
func ClaimName(pod string, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod + "-" + v.Name
	}
	return ""
}

// PodUsesClaim reports whether a pod uses the claim of a PersistentVolume; an empty
// name is that of no claim.
func PodUsesClaim(p *corev1.Pod, namespace, name string) bool {
	return name != "" && p.Namespace == namespace && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return ClaimName(p.Name, &v) == name
	})
}

// InlineFlexVolume is the FlexVolume that a pod has under a name, without a
// PersistentVolume; nil if there is none.
func InlineFlexVolume(p *corev1.Pod, name string) *corev1.FlexVolumeSource {
	i := slices.IndexFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name && v.FlexVolume != nil })
	if i < 0 {
		return nil
	}
	return p.Spec.Volumes[i].FlexVolume
}
