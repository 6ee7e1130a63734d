package bridge

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An Attacher attaches volumes through the cluster (VolumeAttachments) rather
// than through the driver's controller service. All methods may be called side
// by side. Errors are *flex.Error.
type Attacher interface {
	// Attach requests an attachment of the volume to its node and waits for it. After an
	// error the attachment goes on until Detach, unless the error is
	// [csivol.ErrNotBegun] of a first request.
	Attach(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error)
	// Await waits for an attachment that another component requests, and requests none.
	Await(ctx context.Context, a *csivol.Attachment) (csivol.Attached, error)
	// Detach deletes the attachment that Attach requested, and returns when it is gone.
	// An attachment that is unmanaged, or that was handed over to the control plane, is
	// not modified, which is success. Only Driver, Handle, Node and Name are required.
	Detach(ctx context.Context, a *csivol.Attachment) error
	// Lost reports whether an attachment that existed is gone, or is not attached any
	// more. It sends no request. With an error, it is not known.
	Lost(a *csivol.Attachment) (bool, error)
}

// AttachNeed is whether a CSI driver wants its volumes to be attached.
type AttachNeed string

// The needs. Where there is no CSIDriver object the kubelet attaches
// (pkg/volume/csi/csi_plugin.go, CanAttach, Kubernetes v1.37.1), and drivers
// without a controller would wait for ever.
const (
	// NeedUnknown: the cluster was not asked, for example without access to it.
	NeedUnknown AttachNeed = ""
	// NeedByController: there is no CSIDriver object, and the driver's having a
	// controller service decides.
	NeedByController AttachNeed = "ByController"
	NeedAttach       AttachNeed = "Required"
	NeedNoAttach     AttachNeed = "NotRequired"
)

// Policy is what the configuration says of a driver or, where it is silent,
// its CSIDriver object.
type Policy struct {
	// Attach matters to bridgeconfig.AttachAuto.
	Attach AttachNeed
	// PodInfo adds who the pod is to the context of NodePublishVolume
	// (podInfoOnMount).
	PodInfo bool
	FSGroup storagev1.FSGroupPolicy
	// Republish repeats NodePublishVolume (requiresRepublish).
	Republish bool
	// Tokens are those of the pod's service account that NodePublishVolume
	// gets, in its secrets if TokensInSecrets.
	Tokens          []csivol.TokenRequest
	TokensInSecrets bool
}

// policy returns the driver's policy. If the policy was never read, policy waits for it
// for a moment, unless ctx has ended.
func (d *FlexDriver) policy(ctx context.Context) (Policy, error) {
	if d.Policy == nil {
		return Policy{}, nil
	}
	return d.Policy(ctx)
}

// attachmentOf is what a record says of an attachment. It is never read-only:
// spec.flexVolume.readOnly has no effect on what the kubelet asks of mount.
func (b *Bridge) attachmentOf(d *FlexDriver, r *volstate.Record, pod csivol.Pod) *csivol.Attachment {
	return &csivol.Attachment{
		Driver: r.Driver, Handle: r.Handle, Node: b.NodeName, FlexDriver: r.FlexDriver, Name: r.Name, Pod: pod,
		Context: r.Context, FSType: r.FSType, MountFlags: r.KnownFlags(), AccessModes: csivol.Attachable(r.AccessModes, r.AccessMode),
		Secret: d.AttachSecret, KubeletHolds: b.node().there(b.node().volDataPath(r.Key())), Object: r.Object,
		Request: r.Request, Keep: b.mayHave(r),
	}
}

// mayHave reports whether this node may have a volume mounted: it was attached here,
// whichever record knows of that.
func (b *Bridge) mayHave(r *volstate.Record) bool {
	if r.Stage != volstate.None {
		return true
	}
	for _, t := range r.Targets {
		if t.Publish != volstate.None {
			return true
		}
	}
	return b.node().maybeStaged(b.node().stagingPath(r.Key()))
}

// object returns the name of the VolumeAttachment of a volume to this node.
func (b *Bridge) object(key csivol.Key) string {
	return objects.AttachmentName(key.Handle, key.Driver, b.NodeName)
}

// renamed returns an error if a volume is attached under an earlier name of this node.
// Nothing new may use that: flex2csi controller detaches it when the Node is deleted.
func (b *Bridge) renamed(r *volstate.Record) error {
	if r.Object == "" || r.Object == b.object(r.Key()) {
		return nil
	}
	return flex.Errorf(flex.CodeFailedPrecondition, "volume %s is attached under an earlier name of node %s (VolumeAttachment %s); delete the pods that use it on this node, and the Node of that name, so that it is detached", r.Key(), b.NodeName, r.Object)
}

// attachmentLost reports whether an attachment is gone that a record says is
// there. What is not known is not lost.
func (b *Bridge) attachmentLost(r *volstate.Record) bool {
	d := b.Drivers.of(r.FlexDriver, r.Driver)
	if r.Object == "" || r.Attach != volstate.Done || d == nil || d.Attacher == nil {
		return false
	}
	lost, err := d.Attacher.Lost(b.attachmentOf(d, r, csivol.Pod{}))
	return err == nil && lost
}
