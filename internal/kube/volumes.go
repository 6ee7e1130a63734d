package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	// volumeFresh is for how long an answer is good. The callouts of a mount come
	// within it; a PersistentVolume that is bound to another claim meanwhile takes a
	// person longer.
	volumeFresh = time.Minute
	// volumeKept is for how long the last answer holds while the API server is
	// away. Later the storage may belong to another tenant.
	volumeKept = 24 * time.Hour
)

// PersistentVolume returns one, which belongs to all. It is asked for if it was
// not in the last minute; while the API server is away what it said before
// holds, also to an earlier process. Fresh: it is asked for anyway, because it
// does not look as it should and may be another one by now. The code of an error
// tells whether there is none (NotFound).
func (c *Cluster) PersistentVolume(ctx context.Context, name string, fresh bool) (*csivol.PersistentVolume, error) {
	if fresh {
		return c.freshVolume(ctx, name)
	}
	known := c.volumes.get(name)
	if known.volume != nil && known.asked && time.Since(known.when) < volumeFresh {
		return known.volume, nil
	}
	v, err := c.freshVolume(ctx, name)
	if known.volume != nil && time.Since(known.when) < volumeKept && err != nil && codeOf(err) == flex.CodeUnavailable {
		return known.volume, nil
	}
	return v, err
}

func (c *Cluster) freshVolume(ctx context.Context, name string) (*csivol.PersistentVolume, error) {
	o, err := request(ctx, func(ctx context.Context) (*corev1.PersistentVolume, error) {
		return c.core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		c.keptVolumes(c.volumes.forget(name))
	}
	if err != nil {
		return nil, failed(err, "look at PersistentVolume "+name)
	}
	v := persistentVolume(o)
	c.keptVolumes(c.volumes.put(v))
	return v, nil
}

// keptVolumes: without the file a volume is refused during the next outage, and
// nothing is wrong now.
func (c *Cluster) keptVolumes(err error) {
	if err != nil {
		c.log.Error("what the API server says of PersistentVolumes is not kept for a start without it", "error", err)
	}
}

// persistentVolume is what the bridge wants to know of an object.
func persistentVolume(o *corev1.PersistentVolume) *csivol.PersistentVolume {
	v := &csivol.PersistentVolume{
		Name: o.Name, UID: string(o.UID),
		Released: o.Status.Phase == corev1.VolumeReleased || o.Status.Phase == corev1.VolumeFailed,
	}
	for _, mode := range o.Spec.AccessModes {
		v.AccessModes = append(v.AccessModes, csivol.AccessMode(mode))
	}
	if f := o.Spec.FlexVolume; f != nil {
		v.FlexDriver, v.Source, v.ReadOnly = f.Driver, csivol.Source(f.Options, f.FSType), f.ReadOnly
	}
	if s := o.Spec.CSI; s != nil {
		v.CSI = csivol.Key{Driver: s.Driver, Handle: s.VolumeHandle}
	}
	if r := o.Spec.ClaimRef; r != nil {
		v.Claim = csivol.ObjectRef{Namespace: r.Namespace, Name: r.Name, UID: string(r.UID)}
	}
	return v
}
