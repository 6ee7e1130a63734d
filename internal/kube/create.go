package kube

import (
	"context"
	"errors"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// errUnanswered: an attachment may have been created.
var errUnanswered = errors.New("it may have been created")

// create creates the attachment, unless the volume may be on one node only and is on
// another. It returns an attachment that another component has created meanwhile; nil
// if that was deleted already.
func (w *wait) create(ctx context.Context) (o *storagev1.VolumeAttachment, created bool, err error) {
	if err := w.untilReusable(ctx); err != nil {
		return nil, false, err
	}
	if exclusive(w.want) {
		if err := w.free(ctx); err != nil {
			return nil, false, err
		}
	}
	o, err = request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return w.cluster.storage.VolumeAttachments().Create(ctx, attachment.New(w.want, w.owner), metav1.CreateOptions{})
	})
	switch {
	case err == nil:
		return o, true, nil
	case apierrors.IsAlreadyExists(err):
		o, err = w.get(ctx)
		return o, false, err
	}
	err = failed(err, fmt.Sprintf("create VolumeAttachment %s of volume %s for node %s", w.name, aboutVolume(w.want), w.want.Node))
	if !refused(err) {
		err = &flex.Error{Code: flex.CodeOf(err), Err: unanswered{err}}
	}
	return nil, false, err
}

// unanswered marks an error as errUnanswered, and adds no text.
type unanswered struct{ error }

func (e unanswered) Unwrap() error      { return e.error }
func (unanswered) Is(target error) bool { return target == errUnanswered }
