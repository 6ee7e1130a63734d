package assess

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// flexClasses are the StorageClasses of which new volumes become FlexVolumes.
type flexClasses struct {
	byName map[string]*flexClass
	// standard is the default class, which may be of another kind; empty: there is none.
	standard string
}

type flexClass struct{ name, driver string }

// of returns the class of a claim; nil if it makes no FlexVolumes.
func (c *flexClasses) of(claim *corev1.PersistentVolumeClaimSpec, annotations map[string]string) *flexClass {
	if beta := annotations[corev1.BetaStorageClassAnnotation]; beta != "" {
		return c.byName[beta]
	}
	if claim.StorageClassName == nil {
		return c.byName[c.standard]
	}
	return c.byName[*claim.StorageClassName]
}

// provisionedBy is the annotation of a volume with the provisioner that made it.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

func classes(in *Input) *flexClasses {
	drivers := map[string]string{} // by provisioner
	for _, pv := range in.PersistentVolumes {
		if provisioner, driver := made(pv); provisioner != "" {
			drivers[provisioner] = driver
		}
	}
	all := &flexClasses{byName: map[string]*flexClass{}}
	for _, c := range in.StorageClasses {
		if driver := cmp.Or(drivers[c.Provisioner], provisionerDriver(c.Provisioner)); driver != "" && !slices.Contains(in.CSIDrivers, c.Provisioner) {
			all.byName[c.Name] = &flexClass{c.Name, driver}
		}
		if isDefault(c) {
			all.standard = c.Name
		}
	}
	return all
}

// made returns the provisioner and the driver of a FlexVolume, also of one that is
// migrated: its annotation has the old volume.
func made(pv *corev1.PersistentVolume) (provisioner, driver string) {
	if pv.Spec.FlexVolume != nil {
		return pv.Annotations[provisionedBy], pv.Spec.FlexVolume.Driver
	}
	original := pv.Annotations[migrate.OriginalAnnotation]
	if original == "" {
		return "", ""
	}
	var old corev1.PersistentVolume
	if json.Unmarshal([]byte(original), &old) != nil || old.Spec.FlexVolume == nil {
		return "", ""
	}
	return old.Annotations[provisionedBy], old.Spec.FlexVolume.Driver
}

func isDefault(c *storagev1.StorageClass) bool {
	for key, value := range c.Annotations {
		if strings.HasPrefix(key, "storageclass.") && strings.HasSuffix(key, "kubernetes.io/is-default-class") && value == "true" {
			return true
		}
	}
	return false
}
