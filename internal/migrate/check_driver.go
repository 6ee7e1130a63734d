package migrate

import (
	"context"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// driverChecks are about the CSI driver.
func driverChecks() []check {
	return []check{
		{"csi-driver", "the CSIDriver object, and where the bridge goes by something else than the kubelet will; what the driver does not do for the volume", (*subject).rendered, (*subject).checkDriver},
	}
}

// checkDriver compares what the bridge does for the driver with what the kubelet
// and the control plane will do, by its CSIDriver object.
func (s *subject) checkDriver(ctx context.Context, f *findings) error {
	if err := s.unknown["csi-driver"]; err != nil {
		return err
	}
	o := s.driver
	if o == nil {
		f.decide("see whether it should be there, with what the CSI driver's own manifests say",
			"there is no CSIDriver object %s: the control plane attaches its volumes, and waits for ever if it has no external-attacher", s.v.CSIDriver)
		o = &storagev1.CSIDriver{}
	} else {
		f.ok("CSIDriver %s, attachRequired %t", s.v.CSIDriver, s.attaches())
	}
	differs := func(field, configured, objectField, object string) {
		f.decide("make them agree, or see that it does not matter",
			"the bridge goes by %s: %s of the configuration, and the kubelet will go by %s: %s of CSIDriver %s", field, configured, objectField, object, s.v.CSIDriver)
	}
	same := func(field string, configured *bool, object bool, objectField string) {
		if configured != nil && *configured != object {
			differs(field, strconv.FormatBool(*configured), objectField, strconv.FormatBool(object))
		}
	}
	if text := notDone(s.r.mapped); text != "" {
		f.note("for these copy the data into a volume that the driver creates", "%s", text)
	}
	c := s.d.config
	same("podInfo", c.PodInfo, isTrue(o.Spec.PodInfoOnMount), "podInfoOnMount")
	same("requiresRepublish", c.RequiresRepublish, isTrue(o.Spec.RequiresRepublish), "requiresRepublish")
	policy := ptr.Deref(o.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if c.FSGroup != "" && c.FSGroup != policy {
		differs("fsGroup", string(c.FSGroup), "fsGroupPolicy", string(policy))
	}
	if !c.ServiceAccountTokens && len(o.Spec.TokenRequests) > 0 {
		differs("serviceAccountTokens", "false", "tokenRequests", "not empty")
	}
	if c.Attach == bridgeconfig.AttachNone && s.attaches() && !objects.PanicsAtAttachments(s.v.CSIDriver) {
		differs("attach", string(c.Attach), "attachRequired", "true")
	}
	if isTrue(o.Spec.SELinuxMount) {
		return s.checkSELinux(ctx, f)
	}
	return nil
}

// notDone says what a CSI driver does not do for a volume that it did not create; empty: that
// is not known.
func notDone(v *csivol.Volume) string {
	ceph := strings.HasSuffix(v.Driver, "rbd.csi.ceph.com") || strings.HasSuffix(v.Driver, "cephfs.csi.ceph.com")
	if ceph && v.Context["staticVolume"] == "true" { // ceph/ceph-csi docs/static-pvc.md @08c2001
		return "the volume stays a static one (staticVolume): ceph-csi does not expand, snapshot, clone or delete it"
	}
	return ""
}

// checkSELinux: the kubelet stages a volume of such a driver with the pod's context, and the
// bridge has staged it without.
func (s *subject) checkSELinux(ctx context.Context, f *findings) error {
	const (
		do       = "where SELinux is enforced, restart the pods rather than migrate live"
		evidence = "CSIDriver %s has seLinuxMount: true: where SELinux is enforced the kubelet mounts the volume with the pod's context, and the bridge has mounted it without"
	)
	for _, name := range s.v.nodes() {
		node, err := get(ctx, s.w, objects.Nodes(), "", name)
		if err != nil {
			return err
		}
		if node == nil {
			continue // checkNodes says so
		}
		version := node.Status.NodeInfo.KubeletVersion
		if minor, _ := distribution.ParseMinor(version); minor.Has(distribution.SELinuxMount()) {
			f.decide(do, evidence+"; the kubelet of node %s, %s, does so by default", s.v.CSIDriver, name, version)
			return nil
		}
	}
	f.note(do, evidence, s.v.CSIDriver)
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }
