package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// bind waits until the claim is bound to the new volume.
func (m *migration) bind(ctx context.Context) error {
	if len(m.rec.ClaimObject) == 0 { // it had none, or one that was gone
		return nil
	}
	namespace, name, _ := strings.Cut(m.rec.Claim, "/")
	nudged, times := time.Time{}, 0
	return m.wait(ctx, waitFor{
		what: "claim " + m.rec.Claim, resource: objects.Claims().Resource, namespace: namespace, name: name, every: lookUnwatched,
		look: func(ctx context.Context) (string, error) {
			// The volume controller hears of the claim and of the volume by two
			// watches: so it may look at the claim too early.
			if times < 5 && m.r.Now().Sub(nudged) > time.Duration(times)*lookUnwatched {
				nudged, times = m.r.Now(), times+1
				m.nudge(ctx)
			}
			return m.checkBound(ctx)
		},
	})
}

// checkBound says what is missing until claim and volume are bound to each other.
func (m *migration) checkBound(ctx context.Context) (string, error) {
	claim, err := m.getClaim(ctx)
	switch {
	case err != nil:
		return "", err
	case claim == nil || string(claim.UID) != m.rec.ClaimUID:
		return "", terminal("claim %s was deleted: PersistentVolume %s keeps what is stored (reclaim policy Retain); roll back, a resume cannot succeed", m.rec.Claim, m.rec.Volume)
	case claim.Status.Phase != corev1.ClaimBound:
		return "it is " + orNone(string(claim.Status.Phase)), nil
	}
	pv, err := m.getVolume(ctx)
	switch {
	case err != nil:
		return "", err
	case pv == nil || !m.matches(pv, m.rec.To):
		return "", terminal("PersistentVolume %s is not the one any more that was created; see who does that, then resume or roll back", m.rec.Volume)
	case pv.Status.Phase != corev1.VolumeBound:
		return "PersistentVolume " + m.rec.Volume + " is " + orNone(string(pv.Status.Phase)), nil
	}
	return "", nil
}

// waitForClaim waits until the claim is bound to what another client has created.
func (m *migration) waitForClaim(ctx context.Context) error {
	if len(m.rec.ClaimObject) == 0 {
		return nil
	}
	m.nudge(ctx)
	namespace, name, _ := strings.Cut(m.rec.Claim, "/")
	return m.wait(ctx, waitFor{
		what: "claim " + m.rec.Claim, resource: objects.Claims().Resource, namespace: namespace, name: name,
		look: func(ctx context.Context) (string, error) {
			claim, err := m.getClaim(ctx)
			if err != nil || claim == nil || claim.Status.Phase == corev1.ClaimBound {
				return "", err
			}
			return "it is " + orNone(string(claim.Status.Phase)), nil
		},
	})
}

// nudge changes an annotation of the claim: the volume controller looks at a
// claim when the claim changes and else every 15 s; that its volume is there is no
// reason (pkg/controller/volume/persistentvolume/pv_controller.go, syncVolume,
// Kubernetes v1.37.1). Without the nudge the claim is only Lost for longer.
func (m *migration) nudge(ctx context.Context) {
	if err := m.annotateClaim(ctx, m.r.Now().UTC().Format(time.RFC3339Nano)); err != nil && ctx.Err() == nil {
		m.tell(Waiting, m.rec.Stage, fmt.Sprintf("claim %s: %v; the volume controller looks at it within 15 s", m.rec.Claim, err))
	}
}

// annotateClaim sets the annotation, or takes it away: nil.
func (m *migration) annotateClaim(ctx context.Context, value any) error {
	namespace, name, ok := strings.Cut(m.rec.Claim, "/")
	if !ok {
		return nil
	}
	_, err := m.patch(ctx, m.c, objects.Claims().Resource, namespace, name, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": m.rec.ClaimUID, "annotations": map[string]any{MigratedLabel: value},
	}})
	return err
}

// waitForAttachments waits until the control plane has the volume attached to each node on
// which a pod has it: it adopts what is attached.
func (m *migration) waitForAttachments(ctx context.Context) error {
	unique := objects.CSIVolumeName(m.rec.CSIDriver, m.rec.VolumeHandle)
	for _, name := range m.nodesOfPods() {
		err := m.wait(ctx, m.onFeed(ctx, waitFor{
			what: "the control plane", resource: objects.Nodes().Resource, name: name,
			look: func(ctx context.Context) (string, error) {
				node, err := getHeard(ctx, m, objects.Nodes(), "", name)
				if err != nil || node == nil || objects.VolumeAttached(node, unique) {
					return "", err
				}
				if m.unheard {
					if still, err := m.listPodsLeft(ctx, name); err != nil || len(still) == 0 {
						return "", err
					}
				}
				return "the volume is not attached to node " + name + " as a CSI volume yet", nil
			},
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// listPodsLeft returns the pods of the beginning that are on a node and have not ended.
func (m *migration) listPodsLeft(ctx context.Context, node string) (all []journal.Pod, err error) {
	for _, p := range m.rec.Pods {
		if p.Node != node {
			continue
		}
		namespace, name, _ := strings.Cut(p.Name, "/")
		pod, err := objects.Pods().Get(ctx, m.c, namespace, name)
		if err != nil {
			return nil, err
		}
		if pod != nil && string(pod.UID) == p.UID && !objects.PodFinished(pod) {
			all = append(all, p)
		}
	}
	return all, nil
}

// waitForMounts waits until each pod has the volume from the other side: from the
// kubelet's CSI plugin, or, on the way back, from the bridge.
func (m *migration) waitForMounts(ctx context.Context) error {
	if m.rec.Mode == journal.Rolling {
		return m.waitForSuccessor(ctx)
	}
	for _, p := range m.rec.Pods {
		if p.Node == "" {
			continue
		}
		err := m.wait(ctx, m.onFeed(ctx, waitFor{
			what: "the kubelet of node " + p.Node, resource: objects.ConfigMaps().Resource, namespace: bridgestatus.Namespace, name: p.Node,
			look: func(ctx context.Context) (string, error) { return m.checkMounted(ctx, p) },
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// checkMounted says what is missing until a pod has it from the other side.
func (m *migration) checkMounted(ctx context.Context, p journal.Pod) (string, error) {
	d, err := m.readReport(ctx, p.Node)
	if err != nil {
		return "", err
	}
	var v *bridgestatus.NodeVolume
	if d != nil {
		v = d.Find(m.rec.CSIDriver, m.rec.VolumeHandle)
	}
	missing := "it has not mounted the volume for pod " + p.Name + " through its CSI plugin yet, which takes about a minute"
	has := v != nil && v.Has(p.UID)
	switch {
	case m.rec.Direction == journal.ToFlexVolume:
		missing = "it has not mounted the volume for pod " + p.Name + " as a FlexVolume yet, which takes about a minute; if it does not come to that, restart the pod"
		if has {
			return "", nil
		}
	case has && v.HasTakenOver(p.UID):
		return "", nil
	case !has && d != nil && !d.Incomplete: // the bridge had it for the pod, and lets go only of what was taken over
		return "", nil
	}
	if m.unheard {
		if still, err := m.listPodsLeft(ctx, p.Node); err != nil || !slices.Contains(still, p) {
			return "", err
		}
	}
	return missing, nil
}

// readReport returns what the bridge of a node has told since that was started; nil: nothing
// that can be read.
func (m *migration) readReport(ctx context.Context, name string) (*bridgestatus.NodeVolumes, error) {
	object, err := getHeard(ctx, m, objects.ConfigMaps(), bridgestatus.Namespace, name)
	if err != nil || object == nil {
		return nil, err
	}
	d, err := bridgestatus.DecodeNodeVolumes(object.Data[bridgestatus.Key])
	if err != nil {
		return nil, nil //nolint:nilerr // it may be otherwise in a moment
	}
	node, err := getHeard(ctx, m, objects.Nodes(), "", name)
	if err != nil || node == nil || !ofThisBoot(d, node) {
		return nil, err
	}
	return d, nil
}

// finish restores what was changed for the time being, and looks once more.
func (m *migration) finish(ctx context.Context) error {
	pv, err := m.getVolume(ctx)
	switch {
	case err != nil:
		return err
	case pv == nil || pv.deleting() || !m.matches(pv, m.rec.To):
		return terminal("PersistentVolume %s is not the one any more that was created; see who does that, then resume or roll back", m.rec.Volume)
	}
	if err := m.warnOfStuck(ctx); err != nil {
		return err
	}
	policy, provisioner, err := m.finalPolicy()
	if err != nil {
		return err
	}
	if policy != "" && pv.policy() != policy {
		if err := m.restorePolicy(ctx, pv, policy, provisioner); err != nil {
			return err
		}
	}
	if len(m.rec.ClaimObject) > 0 {
		switch err := m.annotateClaim(ctx, nil); objects.OutcomeOf(err) {
		case objects.Done, objects.Refused, objects.Gone, objects.Conflict: // it is only there for people then
		default:
			return err
		}
	}
	return nil
}

// warnOfStuck says so if a pod has come during a rollback and its VolumeAttachment names
// the volume, and so cannot be detached (reattach).
func (m *migration) warnOfStuck(ctx context.Context) error {
	if m.rec.Direction != journal.ToFlexVolume || m.rec.PutBack != "" {
		return nil
	}
	all, err := m.attachments(ctx, m.world())
	for _, va := range all {
		if volumeName(va) != "" && !leftByRollback(va) {
			m.tell(Troubled, m.rec.Stage, fmt.Sprintf("VolumeAttachment %s to node %s names PersistentVolume %s, which is no CSI volume any more: the external-attacher cannot detach it. When no pod on that node uses the volume, take its finalizer away", va.Name, va.Spec.NodeName, m.rec.Volume))
		}
	}
	return err
}
