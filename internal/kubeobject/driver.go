package kubeobject

import (
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

// AttachLimit is how many volumes of a driver may be attached to a node; nil: any
// number.
func AttachLimit(d *storagev1.CSINodeDriver) *int32 {
	if d.Allocatable == nil {
		return nil
	}
	return d.Allocatable.Count
}
