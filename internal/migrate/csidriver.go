package migrate

import (
	"context"
	"strconv"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// checkDriver compares what the bridge does for the driver with what the kubelet
// and the control plane will do, by its CSIDriver object.
func (j *judge) checkDriver(ctx context.Context) {
	o, err := get(ctx, j.w, objects.CSIDrivers(), "", j.v.CSIDriver)
	if err != nil {
		j.unknown("csi-driver", err)
		return
	}
	j.driver = o
	if o == nil {
		j.check("csi-driver", Decide, "see whether it should be there, with what the CSI driver's own manifests say",
			"there is no CSIDriver object %s: the control plane attaches its volumes, and waits for ever if it has no external-attacher", j.v.CSIDriver)
		o = &storagev1.CSIDriver{}
	} else {
		j.check("csi-driver", OK, "", "CSIDriver %s, attachRequired %t", j.v.CSIDriver, j.attaches())
	}
	c := j.d.config
	j.same("podInfo", c.PodInfo, isTrue(o.Spec.PodInfoOnMount), "podInfoOnMount")
	j.same("requiresRepublish", c.RequiresRepublish, isTrue(o.Spec.RequiresRepublish), "requiresRepublish")
	policy := string(bridgeconfig.FSGroupWithFSType)
	if o.Spec.FSGroupPolicy != nil {
		policy = string(*o.Spec.FSGroupPolicy)
	}
	if c.FSGroup != "" && string(c.FSGroup) != policy {
		j.differs("fsGroup", string(c.FSGroup), "fsGroupPolicy", policy)
	}
	if !c.ServiceAccountTokens && len(o.Spec.TokenRequests) > 0 {
		j.differs("serviceAccountTokens", "false", "tokenRequests", "not empty")
	}
	if c.Attach == bridgeconfig.AttachNone && j.attaches() {
		j.differs("attach", string(c.Attach), "attachRequired", "true")
	}
	if isTrue(o.Spec.SELinuxMount) {
		j.check("csi-driver", Note, "on nodes with SELinux, restart the pods rather than migrate live",
			"CSIDriver %s has seLinuxMount: true: where SELinux is enforced the kubelet wants the volume mounted with the pod's context, and the bridge has it mounted without", j.v.CSIDriver)
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func (j *judge) same(field string, configured *bool, object bool, objectField string) {
	if configured != nil && *configured != object {
		j.differs(field, strconv.FormatBool(*configured), objectField, strconv.FormatBool(object))
	}
}

func (j *judge) differs(field, configured, objectField, object string) {
	j.check("csi-driver", Decide, "make them agree, or see that it does not matter",
		"the bridge goes by %s: %s of the configuration, and the kubelet will go by %s: %s of CSIDriver %s", field, configured, objectField, object, j.v.CSIDriver)
}
