package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An AttachmentState is the state of a VolumeAttachment; docs/controller.md explains them.
type AttachmentState string

// The states.
const (
	InUse        AttachmentState = "in use"
	Adopted      AttachmentState = "adopted"
	BeingDeleted AttachmentState = "being deleted"
	NodeGone     AttachmentState = "node gone"
	OutOfService AttachmentState = "out of service"
	NodeNotReady AttachmentState = "node not ready"
	Forgotten    AttachmentState = "forgotten"
	Unused       AttachmentState = "unused"
	Unknown      AttachmentState = "unknown"
)

// States returns all states.
func States() []AttachmentState {
	return []AttachmentState{InUse, Adopted, BeingDeleted, NodeGone, OutOfService, NodeNotReady, Forgotten, Unused, Unknown}
}

// A Finding is a VolumeAttachment and its state.
type Finding struct {
	*storagev1.VolumeAttachment
	State AttachmentState
	// Reason explains the state.
	Reason string
}

// settle is how long a VolumeAttachment may be unused, and its deletion may take,
// before it counts as leaked: attaching takes a while, and so does the kubelet.
const settle = 10 * time.Minute

// Leaked reports whether an unused attachment may block the volume for other nodes.
func (f *Finding) Leaked(now time.Time) bool {
	switch f.State {
	case NodeGone, OutOfService, NodeNotReady, Forgotten, Unused:
		return true
	case BeingDeleted:
		return now.Sub(f.DeletionTimestamp.Time) > settle
	}
	return false
}

// grace returns how long a state has to last before the sweeper deletes the attachment;
// false: it does not. kube-controller-manager waits six minutes before it detaches from
// a node that is not ready
// (pkg/controller/volume/attachdetach/attach_detach_controller.go,
// reconcilerMaxWaitForUnmountDuration, Kubernetes v1.37.1). An operator sets the taint
// out-of-service only when the node is off.
func (v AttachmentState) grace() (time.Duration, bool) {
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

// Evidence is what a check reads of the cluster.
type Evidence interface {
	// GetNode returns nil if there is none.
	GetNode(ctx context.Context, name string) (*corev1.Node, error)
	PodsOf(ctx context.Context, node string) ([]corev1.Pod, error)
	// PersistentVolume returns one, as it was seen lately unless fresh; its error
	// is NotFound if there is none.
	PersistentVolume(ctx context.Context, name string, fresh bool) (*csivol.PersistentVolume, error)
}

// Check returns the state of a VolumeAttachment of flex2csi.
func Check(ctx context.Context, a *storagev1.VolumeAttachment, e Evidence, now time.Time) Finding {
	state, reason, err := check(ctx, a, e, now)
	if err != nil {
		state, reason = Unknown, err.Error()
	}
	return Finding{VolumeAttachment: a, State: state, Reason: reason}
}

func check(ctx context.Context, a *storagev1.VolumeAttachment, e Evidence, now time.Time) (AttachmentState, string, error) {
	if a.DeletionTimestamp != nil {
		return BeingDeleted, deletion(a, now), nil
	}
	n, err := e.GetNode(ctx, a.Spec.NodeName)
	if err != nil {
		return "", "", err
	}
	dead := n == nil || objects.NodeOutOfService(n) && !objects.NodeReady(n)
	if !dead {
		if state, reason := claimed(a, n); state != "" {
			return state, reason, nil
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
	case objects.AttachedBy(a) == objects.AttachedByController:
		return Forgotten, fmt.Sprintf("kube-controller-manager does not have it on node %s, and no pod there uses it", a.Spec.NodeName), nil
	case !objects.NodeReady(n):
		return NodeNotReady, fmt.Sprintf("node %s is not ready, and the API server has no pod on it that uses the volume", a.Spec.NodeName), nil
	}
	return Unused, fmt.Sprintf("no pod of node %s uses it; does flex2csi run there?", a.Spec.NodeName), nil
}

func deletion(a *storagev1.VolumeAttachment, now time.Time) string {
	text := fmt.Sprintf("for %s", now.Sub(a.DeletionTimestamp.Time).Round(time.Second))
	if e := a.Status.DetachError; e != nil {
		return text + ": " + objects.AttachmentErrorText(e)
	}
	return text
}

// claimed returns the state according to the status of a node that is alive.
func claimed(a *storagev1.VolumeAttachment, n *corev1.Node) (AttachmentState, string) {
	csi, flexVolume := objects.CSIVolumeName(a.Spec.Attacher, objects.AttachmentHandle(a)), objects.FlexVolumeName(objects.AttachmentFlexDriver(a), objects.AttachmentPersistentVolume(a))
	for _, list := range []struct {
		name string
		has  func(*corev1.Node, corev1.UniqueVolumeName) bool
	}{{"volumesInUse", objects.VolumeInUse}, {"volumesAttached", objects.VolumeAttached}} {
		if list.has(n, csi) {
			return Adopted, fmt.Sprintf("%s of node %s has it as a CSI volume", list.name, n.Name)
		}
		if list.has(n, flexVolume) {
			return InUse, fmt.Sprintf("%s of node %s", list.name, n.Name)
		}
	}
	return "", ""
}

// user returns a pod of the node that has the volume. On a dead node pods that are being
// deleted do not count: no kubelet ends them.
func user(ctx context.Context, a *storagev1.VolumeAttachment, e Evidence, dead bool) (string, error) {
	pods, err := e.PodsOf(ctx, a.Spec.NodeName)
	if err != nil {
		return "", err
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return objects.PodFinished(&p) || dead && p.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return "", nil
	}
	claim, err := claimOf(ctx, objects.AttachmentPersistentVolume(a), e)
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

// claimOf returns the claim of a PersistentVolume; an empty one if there is none.
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

// uses reports whether a pod uses the volume: by its claim, as an inline volume, or,
// since the PersistentVolume may be deleted, as the pod that it was attached for.
func uses(p *corev1.Pod, a *storagev1.VolumeAttachment, claim csivol.ObjectRef) bool {
	inline := objects.InlineFlexVolume(p, objects.AttachmentPersistentVolume(a))
	return p.Namespace+"/"+p.Name == objects.AttachmentPod(a) || objects.PodUsesClaim(p, claim.Namespace, claim.Name) ||
		inline != nil && inline.Driver == objects.AttachmentFlexDriver(a)
}
