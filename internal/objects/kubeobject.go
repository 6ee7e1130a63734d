package objects

// This file answers questions about objects of Kubernetes that more than
// one part of flex2csi asks, as Kubernetes' own code answers them.

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
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

// VolumeClass is the StorageClass of a PersistentVolume: the annotation of releases before 1.6
// counts before the field (k8s.io/component-helpers/storage/volume/helpers.go,
// GetPersistentVolumeClass, Kubernetes v1.37.1).
func VolumeClass(pv *corev1.PersistentVolume) string {
	if class, ok := pv.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return pv.Spec.StorageClassName
}

// ClaimClass is that of a claim, by the same rule (GetPersistentVolumeClaimClass). A claim that
// names none, not even an empty one, gets the default class.
func ClaimClass(claim *corev1.PersistentVolumeClaim) (class string, named bool) {
	if class, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class, true
	}
	if claim.Spec.StorageClassName == nil {
		return "", false
	}
	return *claim.Spec.StorageClassName, true
}

// DriverInfo is what a CSIDriver object says to the bridge. The API server fills in
// all but the tokens; where it did not, as in a manifest, the defaults are the API's.
func DriverInfo(o *storagev1.CSIDriver) csivol.DriverInfo {
	info := csivol.DriverInfo{
		AttachRequired:    ptr.Deref(o.Spec.AttachRequired, true),
		PodInfoOnMount:    ptr.Deref(o.Spec.PodInfoOnMount, false),
		RequiresRepublish: ptr.Deref(o.Spec.RequiresRepublish, false),
		FSGroupPolicy:     ptr.Deref(o.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		TokensInSecrets:   ptr.Deref(o.Spec.ServiceAccountTokenInSecrets, false),
	}
	for _, t := range o.Spec.TokenRequests {
		info.Tokens = append(info.Tokens, csivol.TokenRequest{
			Audience: t.Audience, Expiration: time.Duration(ptr.Deref(t.ExpirationSeconds, 0)) * time.Second,
		})
	}
	return info
}

// PanicsAtAttachments reports whether a CSI driver's node plugin ends with a panic when it
// starts on a node that has a VolumeAttachment with an inlineVolumeSpec: ceph-csi's RBD
// driver reads spec.source.persistentVolumeName of each of its own, and does not check it for nil
// (internal/rbd/rbd_healer.go, from 3.4 on, seen with 3.12.2). Nothing is lost without: it has no
// PUBLISH_UNPUBLISH_VOLUME, and refuses an image that another node uses.
func PanicsAtAttachments(driver string) bool {
	const rbd = "rbd.csi.ceph.com"
	return driver == rbd || strings.HasSuffix(driver, "."+rbd) // Rook puts a namespace before it
}

// AttachLimit is how many volumes of a driver may be attached to a node; nil: any
// number.
func AttachLimit(d *storagev1.CSINodeDriver) *int32 {
	if d.Allocatable == nil {
		return nil
	}
	return d.Allocatable.Count
}

// Unsupported says why flex2csi does not serve a FlexVolume driver; empty: it may.
func Unsupported(driver string, onWindows bool) string {
	if onWindows {
		return "Windows: flex2csi runs on nodes with Linux only; use the CSI driver in the pod, or a claim of its StorageClass"
	}
	if _, err := driverconfig.ParseDriverName(driver); err != nil {
		return err.Error()
	}
	return ""
}

// RefusedVolume says why the kubelet does not mount a FlexVolume for its PersistentVolume, if
// it does not (pkg/volume/flexvolume/plugin.go, SupportsMountOption;
// pkg/volume/util/operationexecutor/operation_generator.go, checkMountOptionSupport and
// GenerateMapVolumeFunc, which wants a BlockVolumePlugin, Kubernetes v1.37.1).
func RefusedVolume(mountOptions bool, mode corev1.PersistentVolumeMode) string {
	switch {
	case mode == corev1.PersistentVolumeBlock:
		return "the kubelet gives no FlexVolume to a pod as a block device: make the volume with volumeMode Filesystem"
	case mountOptions:
		return "the kubelet refuses a FlexVolume with spec.mountOptions: remove them, and set an option that the mapping makes mount flags of"
	}
	return ""
}

// RefusedSecret says why the kubelet does not pass on a Secret, if it does not: its type has
// to be the name of the driver (pkg/volume/util/util.go, GetSecretForPV, Kubernetes v1.37.1).
func RefusedSecret(namespace, name, kind, driver string) string {
	if kind == driver {
		return ""
	}
	return "the kubelet refuses Secret " + namespace + "/" + name + ": its type must be " + driver + ", and cannot be changed; create it again with that type"
}
