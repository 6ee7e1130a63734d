package kube

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// wrapError returns the error of a request: what it was to do, the API server's answer, and
// what to do next.
func wrapError(err error, what string) error {
	return flex.Errorf(codeOf(err), "%s: %w%s", what, err, objects.Advice(err))
}

// codeOf returns the code for the error of a request. If the API server did not
// answer, or answers about its own state, a retry may succeed.
func codeOf(err error) flex.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return flex.CodeCanceled
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return flex.CodePermissionDenied
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return flex.CodeInvalidArgument
	case apierrors.IsNotFound(err):
		return flex.CodeNotFound
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return flex.CodeAborted
	}
	return flex.CodeUnavailable
}

// isRefused reports whether the API server has rejected a request, so that it had no
// effect.
func isRefused(err error) bool {
	code := codeOf(err)
	return code == flex.CodePermissionDenied || code == flex.CodeInvalidArgument
}

// notBegun marks an error as csivol.ErrNotBegun, and adds no text.
type notBegun struct{ error }

func (e notBegun) Unwrap() error      { return e.error }
func (notBegun) Is(target error) bool { return target == csivol.ErrNotBegun }

// maxDriverText bounds a driver's own text in messages: the whole answer to the
// kubelet may have 1 KiB.
const maxDriverText = 400

func clipText(text string) string {
	if len(text) <= maxDriverText {
		return text
	}
	end := maxDriverText
	for end > 0 && text[end]&0xC0 == 0x80 { // not within a character
		end--
	}
	return text[:end] + "…"
}
