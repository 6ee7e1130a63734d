package kubeobject

import (
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/csivol"
)

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
