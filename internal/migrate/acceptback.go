package migrate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// acceptFlex looks at all that the way back needs, right before.
func (m *migration) acceptFlex(ctx context.Context) error {
	if err := m.waitForFinalizers(ctx); err != nil {
		return err
	}
	pv, err := m.getOld(ctx)
	if err != nil {
		return err
	}
	no := func(format string, args ...any) error {
		m.refused = true
		return terminal("PersistentVolume %s is not taken back: %s; it stays a CSI volume (with reclaim policy Retain), roll it back again when that is otherwise", m.rec.Volume, fmt.Sprintf(format, args...))
	}
	if err := m.checkOriginal(pv); err != nil {
		return no("%v", err)
	}
	if policy := pv.policy(); policy != policyRetain {
		return no("its reclaim policy is %s again", policy)
	}
	claim, raw, err := m.getClaimRaw(ctx)
	if err != nil {
		return err
	}
	if uid := pv.claimUID(); uid != m.rec.ClaimUID {
		return no("another claim has it (uid %s)", uid)
	}
	m.rec.ClaimObject = nil
	if claim != nil && string(claim.UID) == m.rec.ClaimUID {
		if claim.DeletionTimestamp != nil {
			return no("claim %s is being deleted", m.rec.Claim)
		}
		m.rec.ClaimObject = raw
	}
	if err := m.dryRun(ctx, pv, no); err != nil {
		return err
	}
	m.acceptedVersion = pv.ResourceVersion
	return m.checkUsers(ctx, no) // the last, as pods come and go
}

// endRefused ends a rollback that was refused before anything was changed but the
// policy: else the volume would be unfinished for as long as it is refused, and
// in the way of those who want it to stay a CSI volume. A migration that was not
// finished is as far as it was.
func (m *migration) endRefused(ctx context.Context) error {
	if err := m.touch(ctx); err != nil {
		return err
	}
	uid, stage := m.rec.FromUID, cmp.Or(m.rec.Before, journal.Finished)
	m.reverse()
	m.rec.FromUID, m.rec.FromResourceVersion, m.rec.CreatedUID, m.rec.Before = "", "", uid, ""
	m.rec.Stage, m.rec.Times = stage, map[journal.Stage]time.Time{stage: m.r.Now()}
	return nil
}

// waitForFinalizers waits until the volume has none but those that are taken
// away. An external-provisioner takes its own away some time after the policy is
// Retain again.
func (m *migration) waitForFinalizers(ctx context.Context) error {
	return m.wait(ctx, waitFor{
		what: "PersistentVolume " + m.rec.Volume,
		look: func(ctx context.Context) (string, error) {
			pv, err := m.getOld(ctx)
			if err != nil {
				return "", err
			}
			if _, others := sortFinalizers(pv); len(others) > 0 {
				return "it has the finalizer " + others[0] + ": its owner has to remove it", nil
			}
			return "", nil
		},
	})
}

// checkUsers looks whether pods that have the volume can go on with it as a
// FlexVolume: by the bridge of their node, which must be there for it.
func (m *migration) checkUsers(ctx context.Context, no func(string, ...any) error) error {
	users, err := m.listUsers(ctx)
	if err != nil {
		return err
	}
	m.rec.Pods = nil
	for _, pod := range users {
		m.rec.Pods = append(m.rec.Pods, journal.Pod{Name: full(pod), UID: string(pod.UID), Node: pod.Spec.NodeName})
	}
	w := m.world() // which asks about the nodes of these pods
	for i, pod := range users {
		p := &m.rec.Pods[i]
		if p.Owner, err = w.owner(ctx, pod); err != nil {
			return err
		}
		if p.Node == "" {
			continue
		}
		if m.rec.Mode == journal.Offline {
			return no("pod %s has begun to use the claim", p.Name)
		}
		why, err := m.checkBridge(ctx, w, *p)
		if err != nil {
			return err
		}
		if why != "" {
			return no("%s, and pod %s %s; stop its pods (--offline)", why, p.Name, usesThere(pod))
		}
		if why, err = m.checkKubeletRestart(ctx, w, *p); err != nil {
			return err
		}
		if why != "" {
			return no("%s", why)
		}
	}
	if m.handsOver() {
		return m.reattach(ctx)
	}
	served, err := w.served(ctx, m.rec.FlexDriver)
	if err != nil {
		return err
	}
	if !served {
		return no("no bridge serves FlexVolume driver %s (ConfigMaps of %s), so no pod could start with it: put it into the bridge's configuration again", m.rec.FlexDriver, bridgestatus.Namespace)
	}
	return nil
}

// kubeletRestartCheck is accepted by who has made the decision.
const kubeletRestartCheck = "kubelet-restart"

// checkKubeletRestart says what a restart of the kubelet would do to a pod, unless a person
// has decided about that. Its containers have what the CSI plugin has mounted. A
// kubelet that is started again wants the FlexVolume alone, and has the CSI driver
// unpublish the other (pkg/kubelet/volumemanager/reconciler/reconciler_common.go,
// unmountVolumes, Kubernetes v1.37.1), which cannot be prevented. For a driver that
// stages that is a bind, of which the container has its own. For one that runs a process for
// each mount it is the end of that process.
func (m *migration) checkKubeletRestart(ctx context.Context, w *world, p journal.Pod) (why string, err error) {
	if slices.Contains(m.rec.Accept, kubeletRestartCheck) {
		return "", nil
	}
	if v := w.bridge(ctx, p.Node).document.Find(m.rec.CSIDriver, m.rec.VolumeHandle); v != nil && v.Has(p.UID) {
		return "", nil // its containers have the bridge's
	}
	stages, err := w.stages(ctx, m.rec.CSIDriver)
	if err != nil || stages {
		return "", err
	}
	return fmt.Sprintf("pod %s was started with the CSI volume, and CSI driver %s is not known to stage volumes: if it runs a process for each mount, as FUSE drivers do, a restart of the kubelet of node %s takes the volume from the running containers; stop its pods (--offline), or decide that they may go on (--accept %s)",
		p.Name, m.rec.CSIDriver, p.Node, kubeletRestartCheck), nil
}

func usesThere(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil {
		return "has not ended there yet"
	}
	return "uses it there"
}

// checkBridge says why the bridge of a pod's node would not mount the volume;
// empty: it does.
func (m *migration) checkBridge(ctx context.Context, w *world, p journal.Pod) (why string, err error) {
	node, err := get(ctx, w, objects.Nodes(), "", p.Node)
	if err != nil {
		return "", err
	}
	if node == nil || !objects.NodeReady(node) {
		return "node " + p.Node + " is not Ready", nil
	}
	version := node.Status.NodeInfo.KubeletVersion
	if minor, ok := distribution.ParseMinor(version); ok && !minor.Has(distribution.Reconstruction()) {
		return fmt.Sprintf("the kubelet of node %s is %s: %s", p.Node, version, distribution.Reconstruction().Without), nil
	}
	b := w.bridge(ctx, p.Node)
	if b.document == nil {
		why := cmp.Or(b.problem, "it is written within a minute of the start of the bridge; try again then")
		return "the bridge of node " + p.Node + " does not say what it has in ConfigMap " + bridgestatus.Namespace + "/" + p.Node + " (" + why + ")", nil
	}
	if !ofThisBoot(b.document, node) {
		return "the bridge of node " + p.Node + " has said nothing since that was started", nil
	}
	if !b.document.Serves(m.rec.FlexDriver) {
		return "the bridge of node " + p.Node + " does not serve FlexVolume driver " + m.rec.FlexDriver, nil
	}
	if v := b.document.Find(m.rec.CSIDriver, m.rec.VolumeHandle); v != nil && (v.Uncertain || v.Staged == bridgestatus.StagedElsewhere) {
		return "something is under way or was left half-way with the volume on node " + p.Node, nil
	}
	return "", nil
}

// dryRun has the API server accept the FlexVolume.
func (m *migration) dryRun(ctx context.Context, pv *volume, no func(string, ...any) error) error {
	object, err := parse(m.rec.To)
	if err != nil {
		return err
	}
	f := &findings{}
	s := &subject{w: m.world(), old: pv, v: &PlannedVolume{Name: m.rec.Volume, Replacement: object}}
	if err := s.checkDryRun(ctx, f); err != nil {
		return err
	}
	for _, c := range f.all {
		switch c.Status {
		case Fails:
			return no("%s", c.Evidence)
		case Unanswered:
			return retryable{fmt.Errorf("check PersistentVolume %s: %s", m.rec.Volume, c.Evidence)}
		}
	}
	return nil
}
