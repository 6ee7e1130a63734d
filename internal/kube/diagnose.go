package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// reasonAttach is what the control plane calls the event of an attach that
// failed (pkg/kubelet/events/event.go, Kubernetes v1.37.1).
const reasonAttach = "FailedAttachVolume"

// notify makes an event for the operator.
func (op *operation) notify(message string) {
	op.cluster.Notify(csivol.Event{Pod: op.want.Pod, PersistentVolume: op.want.Name, Volume: op.want.Key(), Reason: reasonAttach, Message: message})
}

// report makes an event of the attacher's first error. The attacher retries, and the
// caller waits on.
func (op *operation) report(ctx context.Context, o *storagev1.VolumeAttachment) {
	op.notify(fmt.Sprintf("volume %s is not yet attached to node %s: %s (VolumeAttachment %s)", aboutVolume(op.want), op.want.Node, op.describeWait(ctx, o), o.Name))
}

// errUnfinished returns the error of an attach that outlasts its caller.
func (op *operation) errUnfinished(ctx context.Context, o *storagev1.VolumeAttachment) error {
	if o == nil {
		return errVanished
	}
	return flex.Errorf(flex.CodeDeadlineExceeded, "volume %s is still being attached to node %s: %s (VolumeAttachment %s); this goes on", aboutVolume(op.want), op.want.Node, op.describeWait(ctx, o), o.Name)
}

// describeWait returns what an attach waits for, as far as it can be found out quickly.
func (op *operation) describeWait(ctx context.Context, o *storagev1.VolumeAttachment) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var why []string
	if e := o.Status.AttachError; e != nil {
		why = append(why, "CSI driver "+o.Spec.Attacher+" says: "+clipText(objects.AttachmentErrorText(e)))
	}
	drivers, err := op.cluster.NodeDrivers(ctx, o.Spec.NodeName)
	i := slices.IndexFunc(drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == o.Spec.Attacher })
	switch {
	case err != nil:
		why = append(why, err.Error())
	case i < 0:
		why = append(why, fmt.Sprintf("CSI driver %s is not registered on node %s (CSINode); look at its pod there", o.Spec.Attacher, o.Spec.NodeName))
	case objects.AttachLimit(&drivers[i]) != nil && isFull(o):
		why = append(why, op.describeLimit(ctx, o, *objects.AttachLimit(&drivers[i])))
	case o.Status.AttachError != nil:
	case len(o.Finalizers) == 0:
		why = append(why, fmt.Sprintf("no external-attacher has begun with it; look whether the controller of CSI driver %s runs", o.Spec.Attacher))
	default:
		why = append(why, "CSI driver "+o.Spec.Attacher+" has not answered ControllerPublishVolume yet")
	}
	return strings.Join(why, "; ")
}

// resourceExhausted is a driver's code for a node that can have no more volumes (CSI
// specification, ControllerPublishVolume Errors).
const resourceExhausted = 8

func isFull(o *storagev1.VolumeAttachment) bool {
	e := o.Status.AttachError
	return e != nil && ((e.ErrorCode != nil && *e.ErrorCode == resourceExhausted) || strings.Contains(e.Message, "code = ResourceExhausted"))
}

// describeLimit says how many volumes of a driver a node has: ours, and those that the control
// plane has attached.
func (op *operation) describeLimit(ctx context.Context, o *storagev1.VolumeAttachment, limit int32) string {
	count := 0
	known, _ := op.managed.attachments().List(labels.Everything()) // of memory, without an error
	for _, other := range known {
		if other.Spec.NodeName == o.Spec.NodeName && other.Spec.Attacher == o.Spec.Attacher && other.Status.Attached {
			count++
		}
	}
	ofDriver := string(objects.CSIVolumeName(o.Spec.Attacher, ""))
	if n, err := op.cluster.GetNode(ctx, o.Spec.NodeName); err == nil && n != nil {
		for _, v := range n.Status.VolumesAttached {
			if strings.HasPrefix(string(v.Name), ofDriver) {
				count++
			}
		}
	}
	return fmt.Sprintf("node %s has %d of at most %d volumes of CSI driver %s; move pods with volumes to other nodes", o.Spec.NodeName, count, limit, o.Spec.Attacher)
}

// errUndeleted returns the error of a detach that outlasts its caller.
func (op *operation) errUndeleted(o *storagev1.VolumeAttachment) error {
	why := "CSI driver " + op.want.Driver + " has not detached it yet; look whether its controller runs"
	if e := o.Status.DetachError; e != nil {
		why = "CSI driver " + op.want.Driver + " says: " + clipText(objects.AttachmentErrorText(e))
	}
	return flex.Errorf(flex.CodeDeadlineExceeded, "volume %s is still being detached from node %s: %s (VolumeAttachment %s); this goes on", aboutVolume(op.want), op.want.Node, why, op.name)
}
