package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/kubeobject"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A Verdict is what is to be thought of a VolumeAttachment; docs/controller.md
// explains them.
type Verdict string

// The verdicts.
const (
	InUse        Verdict = "in use"
	Adopted      Verdict = "adopted"
	BeingDeleted Verdict = "being deleted"
	NodeGone     Verdict = "node gone"
	OutOfService Verdict = "out of service"
	NodeNotReady Verdict = "node not ready"
	Forgotten    Verdict = "forgotten"
	Unused       Verdict = "unused"
	Unknown      Verdict = "unknown"
)

// Verdicts are all that there are.
func Verdicts() []Verdict {
	return []Verdict{InUse, Adopted, BeingDeleted, NodeGone, OutOfService, NodeNotReady, Forgotten, Unused, Unknown}
}

// A Finding is a VolumeAttachment and what is to be thought of it.
type Finding struct {
	*storagev1.VolumeAttachment
	Verdict Verdict
	// Reason says what was seen.
	Reason string
}

// settle is how long a VolumeAttachment may be used by nobody, and its deletion
// take, before it is a leak: attaching takes a while, and so does the kubelet.
const settle = 10 * time.Minute

// Leaked reports whether the volume may be unable to go elsewhere for no reason.
func (f *Finding) Leaked(now time.Time) bool {
	switch f.Verdict {
	case NodeGone, OutOfService, NodeNotReady, Forgotten, Unused:
		return true
	case BeingDeleted:
		return now.Sub(f.DeletionTimestamp.Time) > settle
	}
	return false
}

// grace is how long a verdict has to hold before the sweeper acts on it; false:
// it does not. Six minutes is how long kube-controller-manager waits before it
// detaches from a node that it does not hear of
// (pkg/controller/volume/attachdetach/attach_detach_controller.go,
// reconcilerMaxWaitForUnmountDuration, Kubernetes v1.37.1). A taint is put there
// by somebody who knows that the node is off.
func (v Verdict) grace() (time.Duration, bool) {
	switch v {
	case NodeGone, NodeNotReady:
		return 6 * time.Minute, true
	case OutOfService:
		return 0, true
	case Forgotten:
		return settle, true
	}
	return 0, false
}

// Evidence is what a judge may look at.
type Evidence interface {
	// GetNode returns nil if there is none.
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	PodsOf(ctx context.Context, node string) ([]corev1.Pod, error)
	// PersistentVolume returns one, as it was seen lately unless fresh; its error
	// is NotFound if there is none.
	PersistentVolume(ctx context.Context, name string, fresh bool) (*csivol.PersistentVolume, error)
}

// Judge looks at one VolumeAttachment of flex2csi.
func Judge(ctx context.Context, a *storagev1.VolumeAttachment, e Evidence, now time.Time) Finding {
	verdict, reason, err := judge(ctx, a, e, now)
	if err != nil {
		verdict, reason = Unknown, err.Error()
	}
	return Finding{VolumeAttachment: a, Verdict: verdict, Reason: reason}
}

func judge(ctx context.Context, a *storagev1.VolumeAttachment, e Evidence, now time.Time) (Verdict, string, error) {
	if a.DeletionTimestamp != nil {
		return BeingDeleted, deletion(a, now), nil
	}
	n, err := e.GetNode(ctx, a.Spec.NodeName)
	if err != nil {
		return "", "", err
	}
	dead := n == nil || kubeobject.NodeOutOfService(n) && !kubeobject.NodeReady(n)
	if !dead {
		if verdict, reason := claimed(a, n); verdict != "" {
			return verdict, reason, nil
		}
	}
	pod, err := user(ctx, a, e, dead)
	switch {
	case err != nil:
		return "", "", err
	case pod != "":
		return InUse, "pod " + pod, nil
	case n == nil:
		return NodeGone, fmt.Sprintf("there is no Node %s", a.Spec.NodeName), nil
	case dead:
		return OutOfService, fmt.Sprintf("node %s has the taint node.kubernetes.io/out-of-service", a.Spec.NodeName), nil
	case now.Sub(a.CreationTimestamp.Time) < settle:
		return InUse, "it was made a moment ago", nil
	case attachment.AttachedBy(a) == attachment.AttachedByController:
		return Forgotten, fmt.Sprintf("kube-controller-manager does not have it on node %s, and no pod there uses it", a.Spec.NodeName), nil
	case !kubeobject.NodeReady(n):
		return NodeNotReady, fmt.Sprintf("node %s is not ready, and the API server has no pod on it that uses the volume", a.Spec.NodeName), nil
	}
	return Unused, fmt.Sprintf("no pod of node %s uses it; does flex2csi run there?", a.Spec.NodeName), nil
}

func deletion(a *storagev1.VolumeAttachment, now time.Time) string {
	text := fmt.Sprintf("for %s", now.Sub(a.DeletionTimestamp.Time).Round(time.Second))
	if e := a.Status.DetachError; e != nil {
		return text + ": " + attachment.ErrorText(e)
	}
	return text
}

// claimed is what a node that lives says of a volume.
func claimed(a *storagev1.VolumeAttachment, n *corev1.Node) (Verdict, string) {
	csi, flexVolume := kubeobject.CSIVolumeName(a.Spec.Attacher, attachment.Handle(a)), kubeobject.FlexVolumeName(attachment.FlexDriver(a), attachment.PersistentVolume(a))
	for _, list := range []struct {
		name string
		has  func(*corev1.Node, corev1.UniqueVolumeName) bool
	}{{"volumesInUse", kubeobject.VolumeInUse}, {"volumesAttached", kubeobject.VolumeAttached}} {
		if list.has(n, csi) {
			return Adopted, fmt.Sprintf("%s of node %s has it as a CSI volume", list.name, n.Name)
		}
		if list.has(n, flexVolume) {
			return InUse, fmt.Sprintf("%s of node %s", list.name, n.Name)
		}
	}
	return "", ""
}

// user returns a pod of the node that has the volume. Of a dead node those that
// are being deleted do not count: nobody is there to end them.
func user(ctx context.Context, a *storagev1.VolumeAttachment, e Evidence, dead bool) (string, error) {
	pods, err := e.PodsOf(ctx, a.Spec.NodeName)
	if err != nil {
		return "", err
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return kubeobject.PodFinished(&p) || dead && p.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return "", nil
	}
	claim, err := claimOf(ctx, attachment.PersistentVolume(a), e)
	if err != nil {
		return "", err
	}
	for i := range pods {
		if uses(&pods[i], a, claim) {
			return pods[i].Namespace + "/" + pods[i].Name, nil
		}
	}
	return "", nil
}

// claimOf is the claim that has a PersistentVolume; an empty one if there is none.
func claimOf(ctx context.Context, volume string, e Evidence) (csivol.ObjectRef, error) {
	if volume == "" {
		return csivol.ObjectRef{}, nil
	}
	pv, err := e.PersistentVolume(ctx, volume, false)
	switch {
	case err != nil && flex.CodeOf(err) == flex.CodeNotFound:
		return csivol.ObjectRef{}, nil
	case err != nil:
		return csivol.ObjectRef{}, err
	}
	return pv.Claim, nil
}

// uses: by its claim or as an inline volume; or, as the PersistentVolume may be
// gone, because the pod is the one that it was attached for.
func uses(p *corev1.Pod, a *storagev1.VolumeAttachment, claim csivol.ObjectRef) bool {
	inline := kubeobject.InlineFlexVolume(p, attachment.PersistentVolume(a))
	return p.Namespace+"/"+p.Name == attachment.Pod(a) || kubeobject.PodUsesClaim(p, claim.Namespace, claim.Name) ||
		inline != nil && inline.Driver == attachment.FlexDriver(a)
}
