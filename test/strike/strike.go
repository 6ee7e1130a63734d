// Package strike lists what becomes of a request of a migration, for the tables of internal/migrate
// (on client-go's fake) and of test/cluster/migrate (on a control plane of Kubernetes).
package strike

import (
	"context"
	"errors"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// A Blow is what becomes of one request.
type Blow struct {
	Name  string
	After bool // it has had its effect
	// Err is the answer; nil: the process is killed, unless something else happens.
	Err error
	// Again: the next requests have it, too.
	Again Lasting
	// Reads: requests that change nothing have it as well. Between two that do nothing is
	// different but what the process remembers, and an API server that says of what is there
	// that it is not is none.
	Reads bool
	// Meanwhile is what another client does right before, which is all that happens.
	Meanwhile Meanwhile
	// Lease is what the Lease says from then on, as long as Again says.
	Lease error
}

// Kills reports whether the process is killed.
func (b *Blow) Kills() bool { return b.Err == nil && b.Lease == nil && b.Meanwhile == Nothing }

// Lasting is how long a blow lasts.
type Lasting int

// How long: requests that are equal have it for longer than --timeout, all for half of that.
const (
	Once Lasting = iota
	Equal
	All
)

// Meanwhile is what another client does.
type Meanwhile int

// What it does: it changes an annotation of each object that a migration looks at, or gives the
// volume the policy Delete.
const (
	Nothing Meanwhile = iota
	Annotates
	Releases
)

// List returns all blows at a volume.
func List(volume string) []Blow {
	volumes := objects.PersistentVolumes().Resource.GroupResource()
	internal := apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	return []Blow{
		{Name: "killed before"},
		{Name: "killed after", After: true},
		{Name: "429", Reads: true, Err: apierrors.NewTooManyRequests("slow down", 1)},
		{Name: "500", Reads: true, Err: internal},
		{Name: "timeout, not done", Reads: true, Err: context.DeadlineExceeded},
		{Name: "timeout, done", After: true, Err: context.DeadlineExceeded},
		{Name: "refused", Reads: true, Again: Equal, Err: apierrors.NewForbidden(volumes, volume, errors.New("a webhook"))},
		{Name: "conflict", Err: apierrors.NewConflict(volumes, volume, errors.New("it has changed"))},
		{Name: "not found", Err: apierrors.NewNotFound(volumes, volume)},
		{Name: "away", Reads: true, Again: All, Err: &url.Error{Op: "Get", URL: "https://kubernetes", Err: syscall.ECONNREFUSED}},
		{Name: "lease lost", Reads: true, Lease: journal.ErrLost},
		{Name: "lease stale", Reads: true, Again: All, Lease: journal.ErrStale},
		{Name: "changed", Reads: true, Meanwhile: Annotates},
		{Name: "policy", Reads: true, Meanwhile: Releases},
		{Name: "500, done", After: true, Err: internal},
	}
}
