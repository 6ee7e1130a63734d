package bridge

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/lifecycle"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// AttacherSuffices is an error if the driver's volumes cannot be attached through
// the cluster: without the secrets that it wants the driver would do something else
// than it was configured for, or fail and not say why.
func (d *FlexDriver) AttacherSuffices() error {
	if !d.AttachSecretsHere {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "volumes of driver %s are attached by the external-attacher, which cannot read what secrets.controllerPublish names: put it into a Secret of Kubernetes, and name that (secrets.controllerPublish.secretRef)", d.Name)
}

// route returns how volumes are to be attached, as is configured.
func (d *FlexDriver) route(f csivol.Features, p Policy) (lifecycle.Route, error) {
	switch {
	case d.Attach == bridgeconfig.AttachNone:
		return lifecycle.NoAttach, nil
	case d.Attach == bridgeconfig.AttachVA && d.Attacher != nil && p.Attach == NeedNoAttach:
		return lifecycle.NoAttach, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through VolumeAttachments, but the CSIDriver object %s has attachRequired: false: no external-attacher handles them; set attach: Auto", d.Name, d.CSIDriver)
	case d.Attach == bridgeconfig.AttachVA && d.Attacher != nil:
		return lifecycle.ByVolumeAttachment, nil
	case d.Attach == bridgeconfig.AttachVA:
		return lifecycle.NoAttach, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through VolumeAttachments, and this daemon has no access to the API server: give it --in-cluster or --kubeconfig", d.Name)
	case f.Attach:
		return lifecycle.ByControllerService, nil
	case d.Attach == bridgeconfig.AttachController:
		return lifecycle.NoAttach, flex.Errorf(flex.CodeFailedPrecondition, "driver %s is configured to attach through its controller, which does not offer PUBLISH_UNPUBLISH_VOLUME or cannot be reached; look at controllerEndpoint", d.Name)
	case d.Attacher != nil && (p.Attach == NeedAttach || (p.Attach == NeedByController && f.Controller)):
		return lifecycle.ByVolumeAttachment, nil
	}
	return lifecycle.NoAttach, nil
}

// RequirePod is an error unless MayAttach allows it.
func (d *FlexDriver) RequirePod(ctx context.Context, v *csivol.Volume, node string) error {
	if d.MayAttach == nil {
		return nil
	}
	return d.MayAttach(ctx, v, node)
}
