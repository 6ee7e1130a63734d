// Package volumelog has the keys by which log lines name a volume, a pod and a request, in
// flexdriver, the daemon and the controller alike. A context carries their values, from the
// place where a callout or an operation begins, so that no log call names them.
package volumelog

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
)

// A Subject is what log lines are about. What is empty is not known, and not logged.
type Subject struct {
	// Request is the ID of the callout, which flexdriver shows in its answer.
	Request string
	// PersistentVolume is its name, or the pod's name of an inline volume.
	PersistentVolume        string
	CSIDriver, VolumeHandle string
	Namespace, Pod, PodUID  string
	// Dir is the kubelet's directory: a volume directory of a pod, or a device mount path.
	Dir string
}

// Attrs returns the keys and values. Pod and podUID are as in the kubelet's log, where a pod
// is NAMESPACE/NAME. The kubelet's volumeName is not among them: there it is the name of a
// PersistentVolume, of a pod's volume, or a unique name made of the driver's.
func (s Subject) Attrs() []any {
	pod := s.Pod
	if pod != "" && s.Namespace != "" {
		pod = s.Namespace + "/" + pod
	}
	var known []any
	for _, a := range [...]struct{ key, value string }{
		{"request", s.Request},
		{"persistentVolume", s.PersistentVolume},
		{"csiDriver", s.CSIDriver},
		{"volumeHandle", s.VolumeHandle},
		{"pod", pod},
		{"namespace", s.Namespace},
		{"podUID", s.PodUID},
		{"dir", s.Dir},
	} {
		if a.value != "" {
			known = append(known, a.key, a.value)
		}
	}
	return known
}

// Logger returns log with the subject on each line.
func (s Subject) Logger(log *slog.Logger) *slog.Logger {
	if s == (Subject{}) {
		return log
	}
	return log.With(s.Attrs()...)
}

// And returns s with what more says. Another directory is that of another pod.
func (s Subject) And(more Subject) Subject {
	if more.Dir != "" && more.Dir != s.Dir {
		s.Namespace, s.Pod, s.PodUID = "", "", ""
	}
	return Subject{
		Request:          cmp.Or(more.Request, s.Request),
		PersistentVolume: cmp.Or(more.PersistentVolume, s.PersistentVolume),
		CSIDriver:        cmp.Or(more.CSIDriver, s.CSIDriver),
		VolumeHandle:     cmp.Or(more.VolumeHandle, s.VolumeHandle),
		Namespace:        cmp.Or(more.Namespace, s.Namespace),
		Pod:              cmp.Or(more.Pod, s.Pod),
		PodUID:           cmp.Or(more.PodUID, s.PodUID),
		Dir:              cmp.Or(more.Dir, s.Dir),
	}
}

// OfDir returns what a directory of the kubelet tells: unmount has nothing else.
func OfDir(dir string) Subject {
	place, _ := kubeletdir.Parse(dir) // by hand, any directory
	return Subject{PersistentVolume: place.Volume, PodUID: place.PodUID, Dir: dir}
}

type key struct{}

// A carried Subject grows while the callout runs.
type carried struct {
	mu      sync.Mutex
	subject Subject
}

// With returns a context for what is done about a subject, besides what ctx says.
func With(ctx context.Context, s Subject) context.Context {
	return context.WithValue(ctx, key{}, &carried{subject: From(ctx).And(s)})
}

// Learn adds to the subject of ctx itself, for the lines of those who have begun the callout:
// only the mapping tells the volume handle.
func Learn(ctx context.Context, s Subject) {
	if c, ok := ctx.Value(key{}).(*carried); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.subject = c.subject.And(s)
	}
}

// From returns the subject of a context. What the daemon does by itself, such as the
// reconciler's work, has no Request.
func From(ctx context.Context) Subject {
	c, ok := ctx.Value(key{}).(*carried)
	if !ok {
		return Subject{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.subject
}

// Logger returns log with the subject of ctx on each line.
func Logger(ctx context.Context, log *slog.Logger) *slog.Logger { return From(ctx).Logger(log) }
