package clusterview

import "errors"

// Preconditions are what has to be so for an object to be deleted; an empty one
// is not looked at.
type Preconditions struct{ UID, ResourceVersion string }

// A PatchKind is how a patch is written.
type PatchKind string

// The kinds of patches, as their content types.
const (
	// JSONPatch is a list of operations (RFC 6902); one whose test fails changes
	// nothing and is an ErrConflict.
	JSONPatch PatchKind = "application/json-patch+json"
	// MergePatch is a piece of the object (RFC 7386); one with another
	// metadata.resourceVersion or metadata.uid than the object's is an ErrConflict.
	MergePatch PatchKind = "application/merge-patch+json"
)

// What the API server says to a request, for errors.Is. An error about objects
// is one of these, or the context's, or an answer that nobody understands.
var (
	// ErrExists: an object of the name is there.
	ErrExists = errors.New("it exists")
	// ErrGone: there is no such object.
	ErrGone = errors.New("it is not there")
	// ErrConflict: the object is not what it has to be: another UID or
	// resourceVersion, or a test of a patch has failed. Nothing was changed.
	ErrConflict = errors.New("it is another one, or has changed")
	// ErrBudget: a PodDisruptionBudget does not allow to evict the pod now.
	ErrBudget = errors.New("a PodDisruptionBudget does not allow it now")
	// ErrRefused: the API server will not do it: no right, a webhook, a quota, a
	// field that is not valid. Nothing was changed.
	ErrRefused = errors.New("refused")
	// ErrAway: there was no answer, or none that says anything. What was asked
	// for may have been done, or will be in a moment. It is worth another try.
	ErrAway = errors.New("the API server has not answered")

	// ErrHeld: somebody else has the Lease.
	ErrHeld = errors.New("somebody else is at it")
	// ErrLost: the Lease was lost, to somebody else or because the API server did
	// not answer in time.
	ErrLost = errors.New("the Lease is not held any more")
)

// An Event is what a watch of one object tells.
type Event struct {
	// Object is the object as it is now; nil: it is gone.
	Object []byte
}
