package objects_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

func volume(class, provisioner string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: class, PersistentVolumeSource: corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{Driver: "example.com/disk"}}}}
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}
	return pv
}

// migrated is what flex2csi migrate makes of a volume, with --restore-reclaim-policy: the
// annotation with the provisioner is that of the CSI driver.
func migrated(class, original string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{StorageClassName: class, PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disk.csi.example.com"}}}}
	pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "disk.csi.example.com", objects.OriginalAnnotation: original}
	return pv
}

func TestFind(t *testing.T) {
	const original = `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"example.com/old"}},"spec":{"flexVolume":{"driver":"example.com/disk"}}}`
	for name, test := range map[string]struct {
		class      *storagev1.StorageClass
		volumes    []*corev1.PersistentVolume
		csiDrivers []string
		want       string // FlexVolume driver, CSI driver
	}{
		"its provisioner made a FlexVolume":              {class("a", "example.com/old"), []*corev1.PersistentVolume{volume("b", "example.com/old")}, nil, "example.com/disk "},
		"… that is migrated":                             {class("a", "example.com/old"), []*corev1.PersistentVolume{migrated("b", original)}, nil, "example.com/disk disk.csi.example.com"},
		"a FlexVolume of the class":                      {class("a", "example.com/old"), []*corev1.PersistentVolume{volume("a", "")}, nil, "example.com/disk "},
		"… that is migrated, by hand":                    {class("a", "example.com/old"), []*corev1.PersistentVolume{migrated("a", `{"spec":{"flexVolume":{"driver":"example.com/disk"}}}`)}, nil, "example.com/disk disk.csi.example.com"},
		"no volume, the provisioner is known":            {class("a", "ceph.rook.io/block"), nil, nil, "ceph.rook.io/rook-ceph "},
		"… of Huawei":                                    {class("a", "flexvolume-huawei.com/fuxivol"), nil, nil, "huawei.com/fuxivol "},
		"… that has become a CSI driver":                 {class("a", "hpe.com/nimble"), nil, []string{"hpe.com/nimble"}, ""},
		"no volume, the provisioner is not known":        {class("a", "example.com/old"), nil, nil, ""},
		"replaced, CSIDriver objects not read":           {class("a", "disk.csi.example.com"), []*corev1.PersistentVolume{migrated("a", original)}, nil, ""},
		"replaced, the FlexVolumes are not migrated":     {class("a", "disk.csi.example.com"), []*corev1.PersistentVolume{volume("a", "example.com/old")}, []string{"disk.csi.example.com"}, ""},
		"no provisioner":                                 {class("a", "kubernetes.io/no-provisioner"), []*corev1.PersistentVolume{volume("a", "")}, nil, ""},
		"a CSI volume that was none":                     {class("a", "example.com/old"), []*corev1.PersistentVolume{migrated("a", "")}, nil, ""},
		"an annotation that is none":                     {class("a", "example.com/old"), []*corev1.PersistentVolume{migrated("a", "{")}, nil, ""},
		"volumes without a class, of no provisioner":     {class("a", "example.com/old"), []*corev1.PersistentVolume{volume("", "")}, nil, ""},
		"a class without provisioner, as in a bad chart": {class("a", ""), []*corev1.PersistentVolume{volume("", "")}, nil, ""},
	} {
		got := ""
		for _, c := range objects.FindFlexClasses([]*storagev1.StorageClass{test.class}, test.volumes, test.csiDrivers).All() {
			got += c.FlexDriver + " " + c.CSIDriver
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestOf(t *testing.T) {
	old, newer, csi := class("old", "oracle.com/oci"), class("newer", "oracle.com/oci"), class("csi", "disk.csi.example.com")
	old.Annotations = map[string]string{objects.BetaDefault: "true"}
	newer.Annotations = map[string]string{objects.Default: "true"}
	newer.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	csi.Annotations = map[string]string{objects.Default: "false"}
	all := objects.FindFlexClasses([]*storagev1.StorageClass{newer, old, csi}, nil, []string{"disk.csi.example.com"})
	got := map[string]string{}
	for name, claim := range map[string]*corev1.PersistentVolumeClaim{
		"named":      {Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("old")}},
		"annotation": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.BetaStorageClassAnnotation: "old"}}},
		"default":    {},
		"none":       {Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("")}},
		"csi":        {Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("csi")}},
	} {
		if c := all.Of(claim); c != nil {
			got[name] = c.Name
		}
	}
	if diff := cmp.Diff(map[string]string{"named": "old", "annotation": "old", "default": "newer"}, got); diff != "" {
		t.Error(diff)
	}
}
