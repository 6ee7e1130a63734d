package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A driver is a FlexVolume driver of the tests, and the CSI driver behind it.
// manifests/flex2csi/config.yaml has them all.
type driver struct {
	flex string
	csi  string
}

// What is in manifests, by what is special about it.
func disk() driver    { return driver{flex: "example.com/disk", csi: "disk.csi.example.com"} }
func share() driver   { return driver{flex: "example.com/share", csi: "share.csi.example.com"} }
func group() driver   { return driver{flex: "example.com/group", csi: "group.csi.example.com"} }
func offline() driver { return driver{flex: "example.com/offline", csi: "offline.csi.example.com"} }

func nostage() driver { return driver{flex: "example.com/nostage", csi: "nostage.csi.example.com"} }

func unattached() driver {
	return driver{flex: "example.com/unattached", csi: "e2e.rbd.csi.ceph.com"}
}
func secured() driver  { return driver{flex: "example.com/secret", csi: "disk.csi.example.com"} }
func late() driver     { return driver{flex: "example.com/late", csi: "late.csi.example.com"} }
func attached() driver { return driver{flex: "example.com/attached", csi: "disk.csi.example.com"} }

// diskOfBoth and shareOfBoth are volumes of one FlexVolume driver, told apart by fsType.
func diskOfBoth() driver  { return driver{flex: "example.com/both", csi: disk().csi} }
func shareOfBoth() driver { return driver{flex: "example.com/both", csi: share().csi} }

// storage is where the CSI driver keeps its volumes, on the node.
func (d driver) storage() string { return "/var/lib/csidriver/" + d.csi }

// executable is where the kubelet looks for the FlexVolume driver.
func (d driver) executable() string { return d.executableIn(pluginDir) }

func (d driver) executableIn(plugins string) string {
	return filepath.Join(plugins, strings.ReplaceAll(d.flex, "/", "~"), filepath.Base(d.flex))
}

// socket is the driver's on the node.
func (d driver) socket() string { return "/var/lib/kubelet/plugins/" + d.csi + "/csi.sock" }

const mebi = 1 << 20

// A volume is a disk of a CSI driver, and what names it in Kubernetes: an inline
// volume, or a PersistentVolume with a claim.
type volume struct {
	driver
	handle string
	// name is that of PersistentVolume and claim, and of the volume in pods.
	name    string
	inline  bool
	spec    corev1.FlexPersistentVolumeSource
	context map[string]string
	bytes   int64
	modes   []corev1.PersistentVolumeAccessMode
	// native makes it a PersistentVolume of the CSI driver, without flex2csi.
	native bool
	// make makes the disk where the drivers of the tests are no example.
	make func(context.Context, csi.ControllerClient) error
}

// A volumeOption changes a volume before it is made.
type volumeOption func(*volume)

func inline(v *volume) { v.inline = true }
func native(v *volume) { v.native = true }

func fsType(name string) volumeOption { return func(v *volume) { v.spec.FSType = name } }

// option is one of the FlexVolume's, and so in the volume's context.
func option(key, value string) volumeOption {
	return func(v *volume) { v.context[key] = value }
}

// secret names a Secret of the scenario's namespace.
func secret(name string) volumeOption {
	return func(v *volume) { v.spec.SecretRef = &corev1.SecretReference{Name: name} }
}

func size(bytes int64) volumeOption { return func(v *volume) { v.bytes = bytes } }

// describe says what a volume is, and makes nothing.
func (t *T) describe(d driver, name string, options ...volumeOption) *volume {
	v := &volume{
		driver: d, name: t.Namespace + "-" + name, handle: t.Namespace + "-" + name, bytes: 64 * mebi,
		context: map[string]string{}, modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		spec: corev1.FlexPersistentVolumeSource{Driver: d.flex, FSType: "ext4"},
	}
	for _, o := range options {
		o(v)
	}
	v.spec.Options = maps.Clone(v.context)
	v.spec.Options["volumeHandle"] = v.handle
	return v
}

// keep makes a volume in Kubernetes, unless it is inline, and takes it away when
// the scenario ends.
func (t *T) keep(v *volume) {
	t.Helper()
	t.mu.Lock()
	t.volumes = append(t.volumes, v)
	t.mu.Unlock()
	if !v.inline {
		t.createClaim(v)
	}
}

// volume makes one: in the storage system and, unless it is inline, in
// Kubernetes.
func (t *T) volume(d driver, name string, options ...volumeOption) *volume {
	t.Helper()
	v := t.describe(d, name, options...)
	t.must(v.createDisk(t.ctx()))
	t.keep(v)
	return v
}

// source is the volume in the spec of a pod.
func (v *volume) source() corev1.VolumeSource {
	if !v.inline {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.name}}
	}
	source := &corev1.FlexVolumeSource{Driver: v.spec.Driver, FSType: v.spec.FSType, Options: v.spec.Options, ReadOnly: v.spec.ReadOnly}
	if v.spec.SecretRef != nil {
		source.SecretRef = &corev1.LocalObjectReference{Name: v.spec.SecretRef.Name}
	}
	return corev1.VolumeSource{FlexVolume: source}
}

// createClaim makes the PersistentVolume and its claim, bound to each other.
func (t *T) createClaim(v *volume) {
	t.Helper()
	t.must(t.tryCreateClaim(v))
}

func (t *T) tryCreateClaim(v *volume) error {
	class := "grows"
	capacity := v.capacity()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: capacity, AccessModes: v.modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			StorageClassName: class, ClaimRef: &corev1.ObjectReference{Namespace: t.Namespace, Name: v.name},
		},
	}
	pv.Spec.PersistentVolumeSource = v.persistent(t.Namespace)
	if _, err := t.client.CoreV1().PersistentVolumes().Create(t.ctx(), pv, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Create(t.ctx(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: v.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: v.name, AccessModes: v.modes, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: capacity},
		},
	}, metav1.CreateOptions{})
	return err
}

func (v *volume) capacity() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.bytes, resource.BinarySI)}
}

func (v *volume) persistent(namespace string) corev1.PersistentVolumeSource {
	if v.native {
		return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: v.csi, VolumeHandle: v.handle, FSType: v.spec.FSType, VolumeAttributes: v.context,
		}}
	}
	flex := v.spec.DeepCopy()
	if flex.SecretRef != nil {
		flex.SecretRef.Namespace = namespace
	}
	return corev1.PersistentVolumeSource{FlexVolume: flex}
}

// deleteVolume deletes claim and PersistentVolume, and waits until they are gone:
// what still uses them holds them.
func (t *T) deleteVolume(v *volume) {
	t.Helper()
	if v.inline {
		return
	}
	claims, volumes := t.client.CoreV1().PersistentVolumeClaims(t.Namespace), t.client.CoreV1().PersistentVolumes()
	for what, err := range map[string]error{
		"claim":            claims.Delete(t.ctx(), v.name, metav1.DeleteOptions{}),
		"PersistentVolume": volumes.Delete(t.ctx(), v.name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %s %s: %v", what, v.name, err)
		}
	}
	t.check(retry(t.patience, func() error {
		_, err := volumes.Get(t.ctx(), v.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("PersistentVolume %s is still there: %w", v.name, err)
	}))
}

// createDisk makes the volume in the storage system.
func (v *volume) createDisk(ctx context.Context) error {
	if v.make != nil {
		return v.call(ctx, v.make)
	}
	return v.call(ctx, func(ctx context.Context, c csi.ControllerClient) error {
		_, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: v.handle, CapacityRange: &csi.CapacityRange{RequiredBytes: v.bytes}, Parameters: v.context,
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			}},
		})
		return err
	})
}

// deleteDisk deletes it there, which the driver refuses while it is in use.
func (v *volume) deleteDisk() error {
	if v.csi == "" {
		return nil
	}
	return v.call(context.Background(), func(ctx context.Context, c csi.ControllerClient) error {
		_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.handle})
		return err
	})
}

func (d driver) call(ctx context.Context, what func(context.Context, csi.ControllerClient) error) error {
	conn, err := grpc.NewClient("unix://"+d.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := what(ctx, csi.NewControllerClient(conn)); err != nil {
		return fmt.Errorf("driver %s: %w", d.csi, err)
	}
	return nil
}

// dir is the volume's directory of a pod, as the kubelet knows it.
func (v *volume) dir(pod *corev1.Pod) string {
	return fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/%s/%s", pod.UID, strings.ReplaceAll(v.driver.flex, "/", "~"), v.name)
}
