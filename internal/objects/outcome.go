package objects

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An Outcome is what the error of a request says of its effect.
type Outcome int

// The outcomes.
const (
	// Done: there is no error.
	Done Outcome = iota
	// Gone: there is no such object. Nothing was changed.
	Gone
	// Exists: an object of the name is there. Nothing was created.
	Exists
	// Conflict: the object is another one, or has changed. Nothing was changed.
	Conflict
	// Refused: the API server will not do it: no right, a webhook, a quota, a budget, a field
	// that is not valid. Nothing was changed.
	Refused
	// Unknown: there was no answer, or none that says anything. The request may have been
	// done, or will be in a moment. It is worth another try.
	Unknown
	// Canceled: the caller gave it up. It may have been done.
	Canceled
	// None: the error is not that of a request.
	None
)

// OutcomeOf sorts the error of a request.
func OutcomeOf(err error) Outcome {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.As(err, new(*requestError)) {
		return None
	}
	return outcomeOf(err)
}

// outcomeOf takes an error for that of a request.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, context.Canceled):
		return Canceled
	case apierrors.IsNotFound(err):
		return Gone
	case apierrors.IsAlreadyExists(err):
		return Exists
	case apierrors.IsConflict(err), misfits(err), anotherUID(err):
		return Conflict
	case IsBudget(err), denied(err), errors.As(err, new(refusal)):
		return Refused
	}
	if said, ok := statusOf(err); ok {
		switch code := said.Code; {
		// Who asks is not known while a webhook that authenticates does not answer.
		case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusUnauthorized, code == http.StatusGone:
		case code >= http.StatusBadRequest && code < http.StatusInternalServerError:
			return Refused
		}
	}
	return Unknown
}

// Advice is what the error of a request lets the operator do next, to be appended to it. What
// another try may help against is never called a refusal.
func Advice(err error) string {
	said, _ := statusOf(err)
	switch outcome := outcomeOf(err); {
	case outcome == Conflict:
		return "; another client has changed the object: a retry reads it again"
	case said.Code == http.StatusUnauthorized:
		return "; the credentials are not accepted now: a retry may succeed; if the token or certificate has expired, log in again"
	case outcome == Unknown && strings.Contains(said.Message, "failed calling webhook"):
		return "; check the pods of this webhook: a retry may succeed when they answer"
	case outcome == Unknown:
		return "; the API server is away or busy: a retry may succeed"
	case said.Reason == metav1.StatusReasonForbidden && strings.Contains(said.Message, " cannot "): // a policy says itself what it denies
		return "; grant this user the right (docs/rbac.md)"
	}
	return ""
}

// IsBudget reports whether a PodDisruptionBudget does not allow an eviction now.
func IsBudget(err error) bool { return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) }

// refusal is a [Refused] that would look like another outcome.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// A requestError says what was to be done, and what to do next.
type requestError struct {
	what string
	err  error
}

func (e *requestError) Error() string { return fmt.Sprintf("%s: %v%s", e.what, e.err, Advice(e.err)) }

func (e *requestError) Unwrap() error { return e.err }

// isAbout reports whether an error is about an object: a webhook may say of another one
// that it exists.
func isAbout(err error, resource, name string) bool {
	said, ok := statusOf(err)
	return ok && said.Details != nil && said.Details.Kind == resource && said.Details.Name == name
}

// misfits reports whether a JSON patch did not fit the object: a test failed, or a path is
// not there. The API server says that with the code of an invalid object, and does not say
// which field of which object is (k8s.io/apiserver/pkg/endpoints/handlers/patch.go,
// applyJSPatch, Kubernetes v1.37.1).
func misfits(err error) bool {
	said, ok := statusOf(err)
	return ok && said.Code == http.StatusUnprocessableEntity && (said.Details == nil || (said.Details.Kind == "" && len(said.Details.Causes) == 0))
}

// anotherUID reports whether a merge patch has named another object's UID.
func anotherUID(err error) bool {
	said, ok := statusOf(err)
	return ok && said.Details != nil && slices.ContainsFunc(said.Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// denied reports whether what looks like a failure of the API server is a refusal, which its
// words alone say: that of an eviction of a pod in two PodDisruptionBudgets
// (pkg/registry/core/pod/storage/eviction.go, Create), and that of a webhook with any code
// (k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go, ToStatusErr, Kubernetes
// v1.37.1). All else of this code is none, as "etcdserver: leader changed", which has no reason.
func denied(err error) bool {
	said, ok := statusOf(err)
	return ok && said.Code == http.StatusInternalServerError && said.Reason == "" &&
		(strings.Contains(said.Message, "denied the request") || strings.Contains(said.Message, "more than one PodDisruptionBudget"))
}

// statusOf is what the API server has said.
func statusOf(err error) (metav1.Status, bool) {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return metav1.Status{}, false
	}
	return said.Status(), true
}
