package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// answered makes the error of a request about objects: what was to be done, what
// the API server said, and which of clusterview's errors that is.
func answered(err error, what string) error {
	e := fmt.Errorf("%s: %w", what, err)
	if misfits(err) { // of which the API server's words say nothing
		e = fmt.Errorf("%s: it has changed since it was looked at (%w)", what, err)
	}
	if is := meaning(err); is != nil {
		e = answer{e, is}
	}
	return &flex.Error{Code: codeOf(err), Err: e}
}

// answer is an error that is another one too, without a word of its own.
type answer struct {
	error
	is error
}

func (a answer) Unwrap() error        { return a.error }
func (a answer) Is(target error) bool { return target == a.is }

// meaning is what an error of a request means to whoever made it; nil if that
// has ended it.
func meaning(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case apierrors.IsNotFound(err):
		return clusterview.ErrGone
	case apierrors.IsAlreadyExists(err):
		return clusterview.ErrExists
	case apierrors.IsConflict(err), misfits(err), anotherUID(err):
		return clusterview.ErrConflict
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		return clusterview.ErrBudget
	case withoutReason(err):
		return clusterview.ErrRefused
	}
	if said, ok := statusOf(err); ok {
		switch code := said.Code; {
		// Who asks is not known while a webhook that authenticates is away.
		case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusUnauthorized:
		case code >= http.StatusBadRequest && code < http.StatusInternalServerError:
			return clusterview.ErrRefused
		}
	}
	return clusterview.ErrAway
}

// misfits reports whether a JSON patch did not fit the object: a test failed, or
// a path is not there. The API server says that with the code of an invalid
// object, and does not say which field of which object is
// (k8s.io/apiserver/pkg/endpoints/handlers/patch.go, applyJSPatch, Kubernetes
// v1.37.1).
func misfits(err error) bool {
	s, ok := statusOf(err)
	return ok && s.Code == http.StatusUnprocessableEntity && (s.Details == nil || s.Details.Kind == "" && len(s.Details.Causes) == 0)
}

// anotherUID reports whether a merge patch has named another object's UID.
func anotherUID(err error) bool {
	s, ok := statusOf(err)
	return ok && s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// withoutReason reports whether what looks like a failure of the API server is a
// refusal: that of an eviction of a pod in two PodDisruptionBudgets is
// (pkg/registry/core/pod/storage/eviction.go, Create, Kubernetes v1.37.1), and a
// webhook may say what it likes. A failure of its own has a reason.
func withoutReason(err error) bool {
	s, ok := statusOf(err)
	return ok && s.Code == http.StatusInternalServerError && s.Reason == ""
}

// statusOf is what the API server has said.
func statusOf(err error) (metav1.Status, bool) {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return metav1.Status{}, false
	}
	return said.Status(), true
}
