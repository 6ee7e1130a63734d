package objects

// This file finds the StorageClasses of which new volumes become FlexVolumes.

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const (
	// OriginalAnnotation is the FlexVolume that a migrated volume was, without its status.
	OriginalAnnotation = "flex2csi.io/original"
	// provisionedBy is the provisioner that made a volume.
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	// Default marks the default class
	// (pkg/volume/util/storageclass.go, IsDefaultAnnotation, Kubernetes v1.37.1).
	Default = "storageclass.kubernetes.io/is-default-class"
	// BetaDefault marks it, too.
	BetaDefault = "storageclass.beta.kubernetes.io/is-default-class"
)

// FlexClasses are the StorageClasses of a cluster that make FlexVolumes.
type FlexClasses struct {
	byName map[string]*FlexClass
	// standard is the default class, which may be of another kind; empty: there is none.
	standard string
}

// A FlexClass makes FlexVolumes.
type FlexClass struct {
	*storagev1.StorageClass
	// FlexDriver is the driver of its volumes.
	FlexDriver string
	// CSIDriver is what volumes of the class were migrated to, or else volumes of
	// FlexDriver, if to one CSI driver; empty: not known.
	CSIDriver string
}

// FindFlexClasses finds the classes by the provisioners' volumes that are or were FlexVolumes, by what
// is known of the provisioner, and by the volumes of the class. A provisioner that is a CSI
// driver makes none.
func FindFlexClasses(classes []*storagev1.StorageClass, volumes []*corev1.PersistentVolume, csiDrivers []string) *FlexClasses {
	byProvisioner, byClass, toByClass := map[string]string{}, map[string]string{}, map[string]string{}
	to := map[string][]string{} // by FlexVolume driver
	for _, pv := range volumes {
		old := flexVolume(pv)
		if old == nil {
			continue
		}
		driver := old.Spec.FlexVolume.Driver
		byProvisioner[old.Annotations[provisionedBy]] = driver
		class := VolumeClass(pv)
		byClass[class] = driver
		if pv.Spec.CSI != nil {
			toByClass[class] = pv.Spec.CSI.Driver
			if !slices.Contains(to[driver], pv.Spec.CSI.Driver) {
				to[driver] = append(to[driver], pv.Spec.CSI.Driver)
			}
		}
	}
	delete(byProvisioner, "") // made by hand
	all := &FlexClasses{byName: map[string]*FlexClass{}, standard: standard(classes)}
	for _, c := range classes {
		driver := cmp.Or(byProvisioner[c.Provisioner], known(c.Provisioner), byClass[c.Name])
		inTree := strings.HasPrefix(c.Provisioner, "kubernetes.io/")
		if driver == "" || inTree || slices.Contains(csiDrivers, c.Provisioner) || slices.Contains(to[driver], c.Provisioner) {
			continue
		}
		csiDriver := toByClass[c.Name]
		if csiDriver == "" && len(to[driver]) == 1 {
			csiDriver = to[driver][0]
		}
		all.byName[c.Name] = &FlexClass{c, driver, csiDriver}
	}
	return all
}

// All returns the classes by their names.
func (c *FlexClasses) All() (all []*FlexClass) {
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		all = append(all, c.byName[name])
	}
	return all
}

// Of returns the class of a claim; nil if it makes no FlexVolumes.
func (c *FlexClasses) Of(claim *corev1.PersistentVolumeClaim) *FlexClass {
	class, named := ClaimClass(claim)
	if !named {
		class = c.standard
	}
	return c.byName[class]
}

// IsEffectiveDefault reports whether claims without a class get this one: others may be marked,
// too.
func (c *FlexClasses) IsEffectiveDefault(name string) bool { return name == c.standard }

// flexVolume returns a FlexVolume, or what a migrated volume was; nil for others.
func flexVolume(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	if pv.Spec.FlexVolume != nil {
		return pv
	}
	var old corev1.PersistentVolume
	if original := pv.Annotations[OriginalAnnotation]; original == "" || json.Unmarshal([]byte(original), &old) != nil || old.Spec.FlexVolume == nil {
		return nil
	}
	return &old
}

// standard is the default class: of several the newest, then the first by name
// (pkg/volume/util/storageclass.go, GetDefaultClass, Kubernetes v1.37.1).
func standard(classes []*storagev1.StorageClass) string {
	var newest *storagev1.StorageClass
	for _, c := range classes {
		if !isDefault(c) {
			continue
		}
		if newest == nil || cmp.Or(newest.CreationTimestamp.Compare(c.CreationTimestamp.Time), strings.Compare(c.Name, newest.Name)) < 0 {
			newest = c
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Name
}

// isDefault reports whether a class is marked as the default.
func isDefault(c *storagev1.StorageClass) bool {
	return c.Annotations[Default] == "true" || c.Annotations[BetaDefault] == "true"
}

// known is the FlexVolume driver of the volumes that a provisioner makes, as its documents
// name it; empty: not known.
func known(provisioner string) string {
	vendor, name, _ := strings.Cut(provisioner, "/")
	switch {
	case provisioner == "ceph.rook.io/block", provisioner == "rook.io/block":
		return "ceph.rook.io/rook-ceph"
	case provisioner == "oracle.com/oci":
		return "oracle/oci"
	case provisioner == "ibm.io/ibmc-s3fs":
		return "ibm/ibmc-s3fs"
	case provisioner == "mapr.com/maprfs", provisioner == "alicloud/disk", provisioner == "alicloud/nas":
		return provisioner
	case vendor == "hpe.com", vendor == "dev.hpe.com": // doryd: the driver has the same name
		return provisioner
	case vendor == "flexvolume-huawei.com":
		return "huawei.com/" + name
	}
	return ""
}
