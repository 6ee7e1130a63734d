package migrate

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// A Reader is what a plan wants of the API server: internal/kube has it. Nothing
// that it does changes anything.
type Reader interface {
	// GetObject returns nil if there is none.
	GetObject(ctx context.Context, r clusterview.Resource, namespace, name string) ([]byte, error)
	ListObjects(ctx context.Context, r clusterview.Resource, s clusterview.Selector) ([][]byte, error)
	// DryRunCreate returns the object as it would be stored, or that nothing but
	// its name, which another one has, stands in the way.
	DryRunCreate(ctx context.Context, r clusterview.Resource, namespace, name string, object []byte) (stored []byte, exists bool, err error)
	May(ctx context.Context, a clusterview.Access) (bool, error)
}

// A Writer changes objects: internal/kube has it. Each of its errors is one of
// clusterview's, or the context's. After clusterview.ErrAway nobody knows whether
// it was done; who made the request looks.
type Writer interface {
	// CreateObject returns the object as it is stored. ErrExists: one of the name
	// is there.
	CreateObject(ctx context.Context, r clusterview.Resource, namespace string, object []byte) (stored []byte, err error)
	// DeleteObject says ErrGone if there is none, and ErrConflict if it is not the
	// one that the preconditions ask for.
	DeleteObject(ctx context.Context, r clusterview.Resource, namespace, name string, p clusterview.Preconditions) error
	PatchObject(ctx context.Context, r clusterview.Resource, namespace, name string, kind clusterview.PatchKind, patch []byte) (stored []byte, err error)
	// EvictPod says ErrBudget if a PodDisruptionBudget does not allow it.
	EvictPod(ctx context.Context, namespace, name, uid string, dryRun bool) error
}

// A Watcher hears of an object: internal/kube has it.
type Watcher interface {
	// WatchObject tells at first what the object is, if it is there, and then each
	// change. The channel is closed when the watch has ended, as each does after a
	// while; whoever waits looks again.
	WatchObject(ctx context.Context, r clusterview.Resource, namespace, name string) (<-chan clusterview.Event, error)
}

// A Cluster is all that a migration wants of the API server.
type Cluster interface {
	Reader
	Writer
	Watcher
}

// A Lease keeps two operators apart.
type Lease interface {
	// Held returns nil while nobody else may migrate.
	Held() error
}

const (
	core    = ""
	storage = "storage.k8s.io"
	apps    = "apps"
)

func resource(group, name string) clusterview.Resource {
	return clusterview.Resource{Group: group, Version: "v1", Name: name}
}

// The resources that are read.
func persistentVolumes() clusterview.Resource { return resource(core, "persistentvolumes") }
func claims() clusterview.Resource            { return resource(core, "persistentvolumeclaims") }
func pods() clusterview.Resource              { return resource(core, "pods") }
func nodes() clusterview.Resource             { return resource(core, "nodes") }
func secrets() clusterview.Resource           { return resource(core, "secrets") }
func configMaps() clusterview.Resource        { return resource(core, "configmaps") }
func csiDrivers() clusterview.Resource        { return resource(storage, "csidrivers") }
func csiNodes() clusterview.Resource          { return resource(storage, "csinodes") }
func attachments() clusterview.Resource       { return resource(storage, "volumeattachments") }
func classes() clusterview.Resource           { return resource(storage, "storageclasses") }
func statefulSets() clusterview.Resource      { return resource(apps, "statefulsets") }
func replicaSets() clusterview.Resource       { return resource(apps, "replicasets") }
func daemonSets() clusterview.Resource        { return resource(apps, "daemonsets") }
func deployments() clusterview.Resource       { return resource(apps, "deployments") }
