package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// showAttachments is status --attachments: the current state of each VolumeAttachment.
func (o *statusOptions) showAttachments(ctx context.Context, names []string, env environment) error {
	cluster, err := o.api.connect(kube.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	findings, err := controller.Look(ctx, cluster)
	if err != nil {
		return err
	}
	s := attachmentStatus(findings, time.Now())
	shown := s.Filter(names).Filter(o.namespaces.namespaces)
	if len(names) > 0 && len(shown.Attachments) == 0 {
		return fmt.Errorf("no VolumeAttachment of flex2csi is for %s (there are %d)", strings.Join(names, " or "), len(s.Attachments))
	}
	return o.format.print(env.out, shown, shown.Show)
}

func attachmentStatus(findings []controller.Finding, now time.Time) *bridgestatus.AttachmentStatus {
	s := bridgestatus.NewAttachments(now)
	for i := range findings {
		f, a := &findings[i], findings[i].VolumeAttachment
		shown := bridgestatus.ClusterAttachment{
			Name: a.Name, PersistentVolume: objects.AttachmentPersistentVolume(a), FlexDriver: objects.AttachmentFlexDriver(a), CSIDriver: a.Spec.Attacher, VolumeHandle: objects.AttachmentHandle(a),
			Node: a.Spec.NodeName, AttachedBy: objects.AttachedBy(a), Pod: objects.AttachmentPod(a), Attached: a.Status.Attached,
			AttachError: bridgestatus.Clean(objects.AttachmentErrorText(a.Status.AttachError)), DetachError: bridgestatus.Clean(objects.AttachmentErrorText(a.Status.DetachError)),
			Created: a.CreationTimestamp.UTC(), State: string(f.State), Reason: f.Reason, Leaked: f.Leaked(now),
		}
		if a.DeletionTimestamp != nil {
			shown.Deleted = bridgestatus.When(a.DeletionTimestamp.Time)
		}
		s.Attachments = append(s.Attachments, shown)
	}
	return s
}
