package assess

import (
	"context"
	"fmt"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// unknownMetadata stands for what the external-attacher will say.
const unknownMetadata = "<from the VolumeAttachment>"

// paper is a cluster that has what the manifests have, in which everything
// succeeds and nothing happens.
type paper struct {
	*recorder
	volume  *FlexVolume
	drivers map[string]csivol.DriverInfo
}

var (
	_ drivers.Cluster = paper{}
	_ bridge.Attacher = paper{}
)

// CSIDriver is the one among the manifests. Without any it is the driver's
// having a controller that decides, as in a cluster that has none.
func (p paper) CSIDriver(name string) (info csivol.DriverInfo, found, synced bool) {
	info, found = p.drivers[name]
	return info, found, true
}

// PersistentVolume is that of the manifests, bound to a claim. The access modes of
// a callout's are not known.
func (p paper) PersistentVolume(_ context.Context, name string, _ bool) (*csivol.PersistentVolume, error) {
	v := p.volume
	if v.inline {
		return nil, flex.Errorf(flex.CodeNotFound, "there is no PersistentVolume %s", name)
	}
	pv := &csivol.PersistentVolume{
		Name: name, FlexDriver: v.FlexDriver, Source: csivol.Source(v.Options.User, v.Options.FSType),
		Claim: csivol.ObjectRef{Namespace: v.Options.PodNamespace, Name: name, UID: name},
	}
	for _, mode := range v.accessModes {
		pv.AccessModes = append(pv.AccessModes, csivol.AccessMode(mode))
	}
	return pv, nil
}

// FlexOptions are those of the call that is shown.
func (p paper) FlexOptions(ctx context.Context, name string) (flex.Options, *csivol.PersistentVolume, error) {
	pv, err := p.PersistentVolume(ctx, name, true)
	return p.volume.Options, pv, err
}

// ClaimUsed: the pod that is shown is there.
func (paper) ClaimUsed(context.Context, csivol.ObjectRef, string) (bool, error) { return true, nil }

// Secret stands for a Secret of the cluster, which is not read.
func (paper) Secret(_ context.Context, ref csivol.SecretRef) (map[string]flex.Secret, error) {
	return map[string]flex.Secret{fmt.Sprintf("<the keys in Secret %s/%s>", ref.Namespace, ref.Name): flex.NewSecret([]byte(notKnown))}, nil
}

// Tokens stands for those that a pod would get.
func (paper) Tokens(context.Context, csivol.Pod, []csivol.TokenRequest) (flex.Secret, error) {
	return flex.NewSecret([]byte(notKnown)), nil
}

// Attach notes what would be made.
func (p paper) Attach(_ context.Context, a *csivol.Attachment) (csivol.Attached, error) {
	name := objects.AttachmentName(a.Handle, a.Driver, a.Node)
	p.actions = append(p.actions, Action{API: "create VolumeAttachment " + name, Attachment: a})
	return csivol.Attached{Object: name, Ours: true, PublishContext: map[string]string{unknownMetadata: unknownMetadata}}, nil
}

// Await is not called: who waits finds what attach has made.
func (p paper) Await(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error) {
	return p.Attach(ctx, a)
}

// Detach notes what would be deleted.
func (p paper) Detach(_ context.Context, a *csivol.Attachment) error {
	p.actions = append(p.actions, Action{API: "delete VolumeAttachment " + objects.AttachmentName(a.Handle, a.Driver, a.Node)})
	return nil
}

// Lost is never.
func (paper) Lost(*csivol.Attachment) (bool, error) { return false, nil }
