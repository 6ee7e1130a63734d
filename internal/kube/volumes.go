package kube

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// volumes are PersistentVolumes that were asked for. What is looked at in one
// never changes: another source is another object of the same name.
type volumes struct {
	mu   sync.Mutex
	seen map[string]seenVolume
}

type seenVolume struct {
	volume *csivol.PersistentVolume
	when   time.Time
}

const (
	// volumeFresh is for how long an answer is good: one object may have taken
	// another's place.
	volumeFresh = 10 * time.Minute
	// maxVolumes bounds the memory for them.
	maxVolumes = 1024
)

// PersistentVolume returns one, which belongs to all. It is asked for if it was
// not in the last minutes; while the API server is away what it said before
// holds. Fresh: it is asked for anyway, because it does not look as it should
// and may be another one by now. The code of an error tells whether there is
// none (NotFound).
func (c *Cluster) PersistentVolume(ctx context.Context, name string, fresh bool) (*csivol.PersistentVolume, error) {
	if fresh {
		return c.freshVolume(ctx, name)
	}
	c.volumes.mu.Lock()
	known := c.volumes.seen[name]
	c.volumes.mu.Unlock()
	if known.volume != nil && time.Since(known.when) < volumeFresh {
		return known.volume, nil
	}
	v, err := c.freshVolume(ctx, name)
	if known.volume != nil && err != nil && codeOf(err) == flex.CodeUnavailable {
		return known.volume, nil
	}
	return v, err
}

func (c *Cluster) freshVolume(ctx context.Context, name string) (*csivol.PersistentVolume, error) {
	o, err := request(ctx, func(ctx context.Context) (*corev1.PersistentVolume, error) {
		return c.core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		c.volumes.forget(name)
	}
	if err != nil {
		return nil, failed(err, "look at PersistentVolume "+name)
	}
	v := persistentVolume(o)
	c.volumes.put(v)
	return v, nil
}

func (s *volumes) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, name)
}

func (s *volumes) put(v *csivol.PersistentVolume) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]seenVolume{}
	}
	if _, ok := s.seen[v.Name]; !ok && len(s.seen) >= maxVolumes {
		s.dropOldest()
	}
	s.seen[v.Name] = seenVolume{v, time.Now()}
}

func (s *volumes) dropOldest() {
	var oldest string
	for name, v := range s.seen {
		if oldest == "" || v.when.Before(s.seen[oldest].when) {
			oldest = name
		}
	}
	delete(s.seen, oldest)
}

// persistentVolume is what the bridge wants to know of an object.
func persistentVolume(o *corev1.PersistentVolume) *csivol.PersistentVolume {
	v := &csivol.PersistentVolume{Name: o.Name, UID: string(o.UID)}
	for _, mode := range o.Spec.AccessModes {
		v.AccessModes = append(v.AccessModes, csivol.AccessMode(mode))
	}
	if f := o.Spec.FlexVolume; f != nil {
		v.FlexDriver, v.Options, v.FSType, v.ReadOnly = f.Driver, maps.Clone(f.Options), f.FSType, f.ReadOnly
	}
	if s := o.Spec.CSI; s != nil {
		v.CSI = csivol.Key{Driver: s.Driver, Handle: s.VolumeHandle}
	}
	if r := o.Spec.ClaimRef; r != nil {
		v.Claim = csivol.ObjectRef{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
	}
	return v
}
