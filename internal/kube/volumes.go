package kube

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

const (
	// volumeFresh is how long an answer is used. All callouts of a mount come within
	// it; an operator needs longer to bind a PersistentVolume to another claim.
	volumeFresh = time.Minute
	// volumeKept is how long the last answer is used while the API server is
	// unavailable. Later the storage may belong to another tenant.
	volumeKept = 24 * time.Hour
)

// PersistentVolume returns a PersistentVolume, which callers share. Answers of the last
// minute are used again. While the API server is unavailable older ones are used, also
// those of an earlier process. Fresh makes a request in any case, because the cached
// one does not match and may have been replaced. If there is none the code of the error
// is NotFound.
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
	_, v, err := c.askVolume(ctx, name)
	return v, err
}

// FlexOptions returns what the kubelet would tell a FlexVolume driver of a
// PersistentVolume: its options, but nothing of a pod and no secrets. They are asked
// for each time, since only a digest of them is kept.
func (c *Cluster) FlexOptions(ctx context.Context, name string) (flex.Options, *csivol.PersistentVolume, error) {
	o, v, err := c.askVolume(ctx, name)
	if err != nil || o.Spec.FlexVolume == nil {
		return flex.Options{}, v, err
	}
	f := o.Spec.FlexVolume
	return flex.Options{VolumeName: o.Name, FSType: f.FSType, ReadOnly: f.ReadOnly, User: f.Options}, v, nil
}

func (c *Cluster) askVolume(ctx context.Context, name string) (*corev1.PersistentVolume, *csivol.PersistentVolume, error) {
	o, err := get(ctx, c.core.PersistentVolumes(), name)
	if apierrors.IsNotFound(err) {
		c.keptVolumes(c.volumes.forget(name))
	}
	if err != nil {
		return nil, nil, wrapError(err, "look at PersistentVolume "+name)
	}
	v := persistentVolume(o)
	c.keptVolumes(c.volumes.put(v))
	return o, v, nil
}

// keptVolumes logs that the cache was not written: volumes may be refused during the
// next outage of the API server, but nothing fails now.
func (c *Cluster) keptVolumes(err error) {
	if err != nil {
		c.log.Error("the cache of PersistentVolumes cannot be written", "error", err)
	}
}

// persistentVolume returns what the bridge needs of an object.
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

// PVState returns the state of the PersistentVolume of a volume that this node has mounted as a FlexVolume,
// and the state of a pod of the node. It is one request unless the PersistentVolume
// was replaced.
func (c *Cluster) PVState(ctx context.Context, persistentVolume string, key csivol.Key, podUID string) (f csivol.PVState, err error) {
	pv, err := c.freshVolume(ctx, persistentVolume)
	switch {
	case err != nil && flex.CodeOf(err) == flex.CodeNotFound:
		f.Replaced, f.Gone = "is gone, or is being replaced", true
	case err != nil:
		return f, err
	case pv.CSI == csivol.Key{}:
		return f, nil
	default:
		f.Replaced = "is the CSI volume " + pv.CSI.String() + " by now"
	}
	pods, err := c.PodsOf(ctx, c.options.Node)
	if err != nil {
		return csivol.PVState{}, err
	}
	for i := range pods {
		p := &pods[i]
		switch {
		case objects.PodFinished(p):
		case slices.Contains(objects.PodUIDs(p), podUID):
			if objects.InlineFlexVolume(p, persistentVolume) != nil {
				return csivol.PVState{}, nil // an inline volume of the pod, without a PersistentVolume
			}
			if p.DeletionTimestamp == nil {
				f.Pod = p.Namespace + "/" + p.Name
			}
		case pv != nil && pv.CSI == key && p.DeletionTimestamp == nil && objects.PodUsesClaim(p, pv.Claim.Namespace, pv.Claim.Name):
			f.Next = p.Namespace + "/" + p.Name
		}
	}
	return f, nil
}

// ClaimUsed reports whether a pod of a node uses a claim, and has not finished.
func (c *Cluster) ClaimUsed(ctx context.Context, claim csivol.ObjectRef, node string) (used bool, err error) {
	what := "list pods of node " + node + " in namespace " + claim.Namespace
	err = listEach(ctx, what, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}, c.core.Pods(claim.Namespace).List, func(p *corev1.Pod) {
		used = used || (!objects.PodFinished(p) && objects.PodUsesClaim(p, claim.Namespace, claim.Name))
	})
	return used && err == nil, err
}
