package drivers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A Cluster has what drivers need of the API server, from internal/kube.
type Cluster interface {
	// CSIDriver returns what the object of a CSI driver says. If synced is false the
	// answer is from the cache of an earlier run.
	CSIDriver(name string) (info csivol.DriverInfo, found, synced bool)
	// PersistentVolume returns a recent PersistentVolume, or a new one if fresh is
	// true. The code of an error is NotFound if there is none, Unavailable if that is
	// not known.
	PersistentVolume(ctx context.Context, name string, fresh bool) (*csivol.PersistentVolume, error)
	// FlexOptions returns the options of a call for a PersistentVolume, without pod and
	// secrets; empty if it is no FlexVolume.
	FlexOptions(ctx context.Context, name string) (flex.Options, *csivol.PersistentVolume, error)
	// ClaimUsed reports whether a pod of a node uses a claim.
	ClaimUsed(ctx context.Context, claim csivol.ObjectRef, node string) (bool, error)
	Secret(ctx context.Context, ref csivol.SecretRef) (map[string]flex.Secret, error)
	// Tokens returns the value of csi.storage.k8s.io/serviceAccount.tokens.
	Tokens(ctx context.Context, pod csivol.Pod, requests []csivol.TokenRequest) (flex.Secret, error)
}

// mapVolumes returns a function that maps the options of calls to volumes. It accepts
// only PersistentVolumes of the cluster, unless the configuration allows others or
// cluster is nil.
func mapVolumes(c *bridgeconfig.Driver, m *mapping.Mapper, cluster Cluster) func(context.Context, flex.Options) (*csivol.Volume, error) {
	if cluster == nil {
		return func(ctx context.Context, o flex.Options) (*csivol.Volume, error) { return m.Map(ctx, o, nil) }
	}
	m = m.WithSecrets(cluster.Secret)
	return func(ctx context.Context, o flex.Options) (*csivol.Volume, error) {
		pv, err := verified(ctx, c, cluster, o)
		if err != nil {
			return nil, err
		}
		v, err := m.Map(ctx, o, pv)
		if err == nil {
			v.Inline = pv == nil
		}
		return v, err
	}
}

// verified returns the PersistentVolume of a call; nil for an inline volume, if they are
// allowed. Without an answer of the API server it refuses what was never verified.
func verified(ctx context.Context, c *bridgeconfig.Driver, cluster Cluster, o flex.Options) (*csivol.PersistentVolume, error) {
	pv, err := cluster.PersistentVolume(ctx, o.VolumeName, false)
	differs := mismatch(c, pv, o)
	if err == nil && differs != nil { // it may have been re-created with this name
		pv, err = cluster.PersistentVolume(ctx, o.VolumeName, true)
		if err != nil && flex.CodeOf(err) != flex.CodeNotFound {
			return nil, fmt.Errorf("%w; and whether that has changed is not known: %w", differs, err)
		}
		differs = mismatch(c, pv, o)
	}
	switch code := flex.CodeOf(err); {
	case err == nil && differs == nil:
		return pv, nil
	case c.Inline && (err == nil || code == flex.CodeNotFound || code == flex.CodeUnavailable):
		return nil, nil //nolint:nilnil // inline volumes are allowed
	case err == nil:
		return nil, differs
	case code == flex.CodeNotFound:
		return nil, flex.Errorf(flex.CodePermissionDenied, "the volume is called %q, and there is no PersistentVolume of that name: it is an inline volume, which is not allowed (driver %s)", o.VolumeName, c.FlexDriver)
	case code == flex.CodeUnavailable:
		return nil, flex.Errorf(flex.CodeUnavailable, "verify that volume %s is a PersistentVolume: %w; this node has not seen it within the last day, so it waits for the API server; the kubelet tries again", o.VolumeName, err)
	}
	return nil, err
}

// mismatch returns how a call differs from the PersistentVolume of that name. The author
// of a pod can give an inline volume any name.
func mismatch(c *bridgeconfig.Driver, pv *csivol.PersistentVolume, o flex.Options) error {
	switch {
	case pv == nil:
		return nil
	case pv.FlexDriver == "" && pv.CSI != csivol.Key{}:
		return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s is the CSI volume %s by now, and is not mounted as a FlexVolume any more; a pod that still wants that has to be deleted", pv.Name, pv.CSI)
	case pv.FlexDriver != c.FlexDriver:
		return flex.Errorf(flex.CodePermissionDenied, "PersistentVolume %s is none of the driver %s; if the volume is an inline one, they are not allowed", pv.Name, c.FlexDriver)
	case pv.Source != csivol.Source(o.User, o.FSType):
		return flex.Errorf(flex.CodePermissionDenied, "the volume has other options or another fsType than PersistentVolume %s: it is an inline volume, which is not allowed, or the kubelet has an older PersistentVolume in mind", pv.Name)
	case pv.Claim.UID == "" || pv.Released:
		return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s is bound to no claim, so no pod can have it but by an inline volume, which is not allowed; bind it to a claim, and use that", pv.Name)
	case o.PodNamespace != "" && o.PodNamespace != pv.Claim.Namespace:
		return flex.Errorf(flex.CodePermissionDenied, "PersistentVolume %s belongs to a claim in namespace %s, and the pod is in namespace %s: it is an inline volume, which is not allowed", pv.Name, pv.Claim.Namespace, o.PodNamespace)
	}
	return nil
}

// read returns a function that maps a PersistentVolume to a volume, without secrets. It
// fails if the mapping uses the pod.
func read(c *bridgeconfig.Driver, m *mapping.Mapper, cluster Cluster) func(context.Context, string) (*csivol.Volume, error) {
	m = m.WithoutSecrets()
	return func(ctx context.Context, name string) (*csivol.Volume, error) {
		o, pv, err := cluster.FlexOptions(ctx, name)
		if err != nil {
			return nil, err
		}
		if pv.FlexDriver != c.FlexDriver {
			return nil, flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s is none of the driver %s any more", name, c.FlexDriver)
		}
		return m.Map(ctx, o, pv)
	}
}

// mayAttach checks an attach, which does not say for which pod it is. Nothing is
// attached for a pod with an inline volume that looks like another tenant's
// PersistentVolume: no pod of that tenant is on the node.
func mayAttach(c *bridgeconfig.Driver, cluster Cluster) func(context.Context, *csivol.Volume, string) error {
	return func(ctx context.Context, v *csivol.Volume, node string) error {
		if c.Inline {
			return nil
		}
		used, err := cluster.ClaimUsed(ctx, v.Claim, node)
		if err != nil {
			return fmt.Errorf("verify that a pod of node %s uses claim %s/%s: %w", node, v.Claim.Namespace, v.Claim.Name, err)
		}
		if !used {
			return flex.Errorf(flex.CodeFailedPrecondition, "PersistentVolume %s belongs to claim %s/%s, which no pod of node %s uses: it is wanted by an inline volume, which is not allowed, or its pod is gone", v.Name, v.Claim.Namespace, v.Claim.Name, node)
		}
		return nil
	}
}

// policy returns the policy of the configuration, with defaults from the CSIDriver object.
func policy(c *bridgeconfig.Driver, cluster Cluster) func(context.Context) (bridge.Policy, error) {
	return func(ctx context.Context) (bridge.Policy, error) {
		var info csivol.DriverInfo
		need := bridge.NeedUnknown
		if cluster != nil {
			var err error
			if info, need, err = ask(ctx, c, cluster); err != nil {
				return bridge.Policy{}, err
			}
		}
		p := bridge.Policy{
			Attach:    need,
			PodInfo:   either(c.PodInfo, info.PodInfoOnMount),
			Republish: either(c.RequiresRepublish, info.RequiresRepublish),
			FSGroup:   cmp.Or(c.FSGroup, info.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy),
		}
		if c.ServiceAccountTokens {
			p.Tokens, p.TokensInSecrets = info.Tokens, info.TokensInSecrets
		}
		return p, nil
	}
}

func either(configured *bool, otherwise bool) bool {
	if configured != nil {
		return *configured
	}
	return otherwise
}

// ask returns what the CSIDriver object says. If the object was never read, as when
// the daemon has just started, ask waits a moment for it. Then it is an error if the
// configuration does not say all of it.
func ask(ctx context.Context, c *bridgeconfig.Driver, cluster Cluster) (info csivol.DriverInfo, need bridge.AttachNeed, err error) {
	const patience, pause = 5 * time.Second, 50 * time.Millisecond
	for deadline := time.Now().Add(patience); ; {
		info, found, synced := cluster.CSIDriver(c.CSIDriver)
		switch {
		case found && info.AttachRequired:
			return info, bridge.NeedAttach, nil
		case found:
			return info, bridge.NeedNoAttach, nil
		case synced:
			return info, bridge.NeedByController, nil
		case !c.AsksCSIDriver():
			return info, bridge.NeedUnknown, nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return info, need, flex.Errorf(flex.CodeUnavailable, "what the CSIDriver object %s says is not known, since the API server could not be asked yet; what attach, podInfo, requiresRepublish and fsGroup say in the configuration does not need it", c.CSIDriver)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
