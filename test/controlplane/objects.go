package controlplane

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checkMade fails the test unless something was made or was there already.
func (p *Plane) checkMade(err error) {
	p.t.Helper()
	if !apierrors.IsAlreadyExists(err) {
		p.check(err)
	}
}

// Namespace makes one, if it is not there.
func (p *Plane) Namespace(name string) {
	p.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := p.admin.CoreV1().Namespaces().Create(p.t.Context(), ns, metav1.CreateOptions{})
	p.checkMade(err)
}

// ConfigMap makes one, in the place of the one of its name.
func (p *Plane) ConfigMap(namespace, name string, data map[string]string) {
	p.t.Helper()
	p.NoConfigMap(namespace, name)
	_, err := p.admin.CoreV1().ConfigMaps(namespace).Create(p.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	p.check(err)
}

// NoConfigMap deletes one, if it is there.
func (p *Plane) NoConfigMap(namespace, name string) {
	p.t.Helper()
	if err := p.admin.CoreV1().ConfigMaps(namespace).Delete(p.t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		p.check(err)
	}
}

// A NodeDriver is a CSI driver on a node: an entry of the CSINode object.
type NodeDriver struct {
	Name, NodeID string
	// Count is how many volumes can be attached; zero: any number.
	Count int32
}

// Node makes a Node that is Ready and its CSINode, as a kubelet does with which
// these CSI drivers have registered.
func (p *Plane) Node(name string, drivers ...NodeDriver) *corev1.Node {
	p.t.Helper()
	node, err := p.admin.CoreV1().Nodes().Create(p.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelHostname: name},
			// Without it the attach/detach controller takes nothing from the node.
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
	}, metav1.CreateOptions{})
	p.check(err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	node, err = p.admin.CoreV1().Nodes().UpdateStatus(p.t.Context(), node, metav1.UpdateOptions{})
	p.check(err)
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID},
	}}}
	for _, d := range drivers {
		driver := storagev1.CSINodeDriver{Name: d.Name, NodeID: d.NodeID}
		if d.Count > 0 {
			driver.Allocatable = &storagev1.VolumeNodeResources{Count: &d.Count}
		}
		csi.Spec.Drivers = append(csi.Spec.Drivers, driver)
	}
	_, err = p.admin.StorageV1().CSINodes().Create(p.t.Context(), csi, metav1.CreateOptions{})
	p.check(err)
	return node
}

// CSIDriver makes the CSIDriver object.
func (p *Plane) CSIDriver(name string, spec storagev1.CSIDriverSpec) *storagev1.CSIDriver {
	p.t.Helper()
	d, err := p.admin.StorageV1().CSIDrivers().Create(p.t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec,
	}, metav1.CreateOptions{})
	p.check(err)
	return d
}

// FlexVolume makes a PersistentVolume of a FlexVolume driver, and a claim of the
// same name in namespace default that is bound to it.
func (p *Plane) FlexVolume(name, driver, fsType string, options map[string]string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	p.t.Helper()
	return p.PersistentVolume(name, corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{
		Driver: driver, FSType: fsType, Options: maps.Clone(options),
	}}, modes...)
}

// PersistentVolume makes one, and a claim of the same name in namespace default
// that is bound to it.
func (p *Plane) PersistentVolume(name string, source corev1.PersistentVolumeSource, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	p.t.Helper()
	if len(modes) == 0 {
		modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	size, class := resource.MustParse("1Gi"), ""
	claim, err := p.admin.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Create(p.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: slices.Clone(modes), VolumeName: name, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}, metav1.CreateOptions{})
	p.checkMade(err) // it stays when the volume is replaced
	if err != nil {
		claim, err = p.admin.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get(p.t.Context(), name, metav1.GetOptions{})
		p.check(err)
	}
	pv, err := p.admin.CoreV1().PersistentVolumes().Create(p.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: size}, AccessModes: slices.Clone(modes),
			PersistentVolumeSource: source, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}, metav1.CreateOptions{})
	p.check(err)
	p.bind(pv, claim)
	return pv
}

// bind says that both are bound, as the volume controller does.
func (p *Plane) bind(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	p.t.Helper()
	patch := []byte(`{"status":{"phase":"Bound"}}`)
	_, err := p.admin.CoreV1().PersistentVolumes().Patch(p.t.Context(), pv.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	p.check(err)
	_, err = p.admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(p.t.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	p.check(err)
}

// Pod makes a pod that is on a node, runs as a ServiceAccount and uses claims.
func (p *Plane) Pod(namespace, name, node, serviceAccount string, claims ...string) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: serviceAccount, TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
		},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	pod, err := p.admin.CoreV1().Pods(pod.Namespace).Create(p.t.Context(), pod, metav1.CreateOptions{})
	p.check(err)
	return pod
}
