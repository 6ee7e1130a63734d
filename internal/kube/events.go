package kube

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/volumelog"
)

// events makes Events. The recorder aggregates equal ones, and lets through 25 on one
// object at once, then one in five minutes
// (k8s.io/client-go/tools/record/events_cache.go).
type events struct {
	mu       sync.Mutex
	recorder record.EventRecorder
}

// component is the Events' source.
const component = "flex2csi"

// start sends events until stop.
func (e *events) start(ctx context.Context, client corev1client.EventsGetter, node string) (stop func()) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	sink := broadcaster.StartRecordingToSink(&eventSink{ctx, client})
	e.mu.Lock()
	e.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node})
	e.mu.Unlock()
	return func() {
		sink.Stop()
		broadcaster.Shutdown()
	}
}

// Notify makes an Event in the background. Without the API server it is lost: the log
// has it as well.
func (c *Cluster) Notify(n csivol.Event) {
	c.events.mu.Lock()
	recorder := c.events.recorder
	c.events.mu.Unlock()
	s := volumelog.Subject{
		PersistentVolume: n.PersistentVolume, CSIDriver: n.Volume.Driver, VolumeHandle: n.Volume.Handle,
		Namespace: n.Pod.Namespace, Pod: n.Pod.Name, PodUID: n.Pod.UID,
	}
	s.Logger(c.log).Warn("event", "reason", n.Reason, "message", n.Message)
	about := c.reference(n)
	if recorder != nil && about.Name != "" {
		recorder.Event(about, corev1.EventTypeWarning, n.Reason, n.Message)
	}
}

// reference returns the pod, or else the PersistentVolume. Its UID is known if the
// PersistentVolume was read before: kubectl describe shows only Events with it.
func (c *Cluster) reference(n csivol.Event) *corev1.ObjectReference {
	if n.Pod.Name == "" || n.Pod.Namespace == "" {
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: n.PersistentVolume}
		if known := c.volumes.get(n.PersistentVolume).volume; known != nil {
			about.UID = types.UID(known.UID)
		}
		return about
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: n.Pod.Namespace, Name: n.Pod.Name, UID: types.UID(n.Pod.UID)}
}

// eventSink is the recorder's way to write events.
type eventSink struct {
	ctx    context.Context //nolint:containedctx // the interface has none
	client corev1client.EventsGetter
}

func (s *eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	return request(s.ctx, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
	})
}

func (s *eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return request(s.ctx, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.Events(e.Namespace).Update(ctx, e, metav1.UpdateOptions{})
	})
}

func (s *eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	return request(s.ctx, func(ctx context.Context) (*corev1.Event, error) {
		return s.client.Events(e.Namespace).Patch(ctx, e.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	})
}
