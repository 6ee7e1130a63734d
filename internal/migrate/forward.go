package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// backUp writes down the objects as they are, before anything is changed.
func (m *migration) backUp(ctx context.Context) error {
	raw, err := m.getOldRaw(ctx)
	if err != nil {
		return err
	}
	m.rec.Flex = raw
	all := [][]byte{raw}
	claim, raw, err := m.getClaimRaw(ctx)
	if err != nil {
		return err
	}
	if claim != nil {
		if string(claim.UID) != m.rec.ClaimUID {
			return terminal("claim %s is another one than when it was planned; plan again", m.rec.Claim)
		}
		m.rec.ClaimObject = raw
		all = append(all, raw)
	}
	related, err := m.readRelated(ctx)
	if err != nil {
		return err
	}
	if err := m.checkLease(); err != nil {
		return err
	}
	if err := m.r.Journal.BackUp(m.rec.Volume, append(all, related...)); err != nil {
		return fmt.Errorf("back up PersistentVolume %s: %w", m.rec.Volume, err)
	}
	return nil // writeStage has the first record compared with what was written
}

// getOldRaw asks for the volume that is to be replaced as the API server sends it.
func (m *migration) getOldRaw(ctx context.Context) ([]byte, error) {
	pv, raw, err := objects.PersistentVolumes().GetRaw(ctx, m.c, "", m.rec.Volume)
	if err != nil {
		return nil, err
	}
	if raw == nil {
		return nil, m.checkOld(nil)
	}
	if err := m.checkOld(&volume{PersistentVolume: pv}); err != nil {
		return nil, err
	}
	m.retains = pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	return raw, nil
}

// owners are the kinds of what re-creates pods.
func owners() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		"StatefulSet": objects.StatefulSets().Resource, "ReplicaSet": objects.ReplicaSets().Resource,
		"Deployment": objects.Deployments().Resource, "DaemonSet": objects.DaemonSets().Resource,
	}
}

// readRelated returns what re-creates the pods, or the pods where nothing does, and the VolumeAttachments.
func (m *migration) readRelated(ctx context.Context) (all [][]byte, err error) {
	add := func(r schema.GroupVersionResource, namespace, name string) (bool, error) {
		raw, err := m.c.GetRaw(ctx, r, namespace, name)
		if raw != nil && !slices.ContainsFunc(all, func(other []byte) bool { return bytes.Equal(other, raw) }) {
			all = append(all, raw)
		}
		return raw != nil, err
	}
	for _, p := range m.rec.Pods {
		namespace, name, _ := strings.Cut(p.Name, "/")
		kind, owner, _ := strings.Cut(p.Owner, "/")
		if r, ok := owners()[kind]; ok {
			if kept, _ := add(r, namespace, owner); kept { // which creates the pod again
				continue
			}
		}
		if _, err := add(objects.Pods().Resource, namespace, name); err != nil {
			return nil, err
		}
	}
	attached, err := m.attachments(ctx, newWorld(m.c, m.r.feeds()))
	if err != nil {
		return nil, err
	}
	for _, va := range attached {
		if _, err := add(objects.VolumeAttachments().Resource, "", va.Name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// attachments returns the VolumeAttachments of the volume, of any creator.
func (m *migration) attachments(ctx context.Context, w *world) ([]*storagev1.VolumeAttachment, error) {
	all, err := w.attachments(ctx)
	if err != nil {
		return nil, err
	}
	return all.find(m.rec.Volume, csivol.Key{Driver: m.rec.CSIDriver, Handle: m.rec.VolumeHandle}), nil
}

// getClaim asks for the volume's claim; nil if it has none.
func (m *migration) getClaim(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	namespace, name, ok := strings.Cut(m.rec.Claim, "/")
	if !ok {
		return nil, nil //nolint:nilnil // documented
	}
	return objects.Claims().Get(ctx, m.c, namespace, name)
}

// getClaimRaw asks for the same, and for it as the API server sends it.
func (m *migration) getClaimRaw(ctx context.Context) (*corev1.PersistentVolumeClaim, []byte, error) {
	namespace, name, ok := strings.Cut(m.rec.Claim, "/")
	if !ok {
		return nil, nil, nil
	}
	return objects.Claims().GetRaw(ctx, m.c, namespace, name)
}

// retain keeps the data of the volume that is to be replaced; of another one
// nothing is changed. It reads the policy back: a patch that was answered well and not applied
// has cost people their data (libopenstorage/stork#871).
func (m *migration) retain(ctx context.Context) error {
	if m.retains { // accept looks once more
		return nil
	}
	pv, err := m.getOld(ctx)
	if err != nil || pv.policy() == policyRetain {
		return err
	}
	if err := m.patchRetain(ctx); err != nil {
		return err
	}
	if pv, err = m.getOld(ctx); err != nil {
		return err
	}
	if policy := pv.policy(); policy != policyRetain {
		return terminal("PersistentVolume %s has reclaim policy %s although the API server has taken Retain: find out who changes it", m.rec.Volume, policy)
	}
	return nil
}

// accept checks the volume once more, right before it is replaced, and has its pods out of the
// way, or looks that they can go on.
func (m *migration) accept(ctx context.Context) error {
	accept := m.acceptCSI
	if m.rec.Direction == journal.ToFlexVolume {
		accept = m.acceptFlex
	}
	if err := accept(ctx); err != nil {
		return err
	}
	return m.waitUntilReplaceable(ctx)
}

func (m *migration) acceptCSI(ctx context.Context) error {
	v, err := m.r.Planner.recheck(ctx, m.c, m.rec.Volume)
	if err != nil {
		return err
	}
	if err := m.checkAcceptable(v); err != nil {
		return err
	}
	m.rec.Pods, m.acceptedVersion = podsOf(v), v.Original.ResourceVersion
	m.rec.ByVendor = m.rec.ByVendor || v.byVendor
	return m.takeMetadata(ctx, v)
}

// waitUntilReplaceable waits until the pods that have to stop may be stopped, or none has the
// volume, or it stays attached under those that go on.
func (m *migration) waitUntilReplaceable(ctx context.Context) error {
	back := m.rec.Direction == journal.ToFlexVolume
	switch {
	case back && m.handsOver(): // reattach has looked
		return nil
	case !back && m.rec.Mode == journal.Rolling:
		return m.mayEvict(ctx)
	case m.rec.Mode == journal.Live && !m.handsOver():
		return m.waitUntilIdle(ctx)
	case !m.handsOver():
		return m.waitForNodes(ctx)
	}
	return m.checkUnattached(ctx)
}

// checkAcceptable compares with what was planned, and what a person has decided.
func (m *migration) checkAcceptable(v *PlannedVolume) error {
	no := func(format string, args ...any) error {
		return terminal("PersistentVolume %s is not replaced: %s; resume when that is otherwise, or roll back", m.rec.Volume, fmt.Sprintf(format, args...))
	}
	switch {
	case v.Original.UID != m.rec.FromUID || v.Original.ClaimUID != m.rec.ClaimUID:
		return no("it is another one than was planned")
	case v.Method == Unknown:
		return retryable{fmt.Errorf("check PersistentVolume %s: %s", m.rec.Volume, strings.Join(v.Why, "; "))}
	case v.Method == No:
		return no("%s", strings.Join(v.Why, "; "))
	case v.Original.ReclaimPolicy != policyRetain:
		return no("its reclaim policy is %s again", v.Original.ReclaimPolicy)
	}
	if why := undecided(v, m.rec.Accept); why != "" {
		return no("%s", why)
	}
	switch {
	case v.Method == Live && m.rec.Mode == journal.Rolling: // of itself, meanwhile
		m.rec.Mode = journal.Live
	case m.rec.Mode == journal.Offline && len(v.Pods) > 0:
		return no("pod %s has begun to use the claim", v.Pods[0].Name)
	case v.Method != Live && (v.Method != PodRestart || m.rec.Mode != journal.Rolling):
		return no("it was to be migrated %s, and is to be %s now: %s", modeWords(m.rec.Mode), v.Method, strings.Join(v.Why, "; "))
	}
	if m.rec.Mode == journal.Rolling {
		if why := graceTooLong(v, m.r.timeout()); why != "" {
			return no("%s", why)
		}
	}
	if changed := changedSince(m.rec.CSI, v.Replacement, "labels", "annotations"); changed != "" {
		return no("it or the configuration has been changed since it was planned: %s", changed)
	}
	return nil
}

// changedSince says where a replacement is another one than was planned, but for these fields
// of its metadata. The original that it carries has policy Retain by now.
func changedSince(planned json.RawMessage, now *Manifest, but ...string) string {
	before, err := parse(planned)
	if err != nil {
		return err.Error()
	}
	a, b := before.Object, now.DeepCopy().Object
	for _, object := range []map[string]any{a, b} {
		delete(sub(object, "metadata", "annotations"), OriginalAnnotation)
		for _, field := range but {
			delete(sub(object, "metadata"), field)
		}
	}
	return strings.Join(append(differences(a, b, ""), additions(a, b, "")...), "; ")
}

// undecided are the decisions that are still open.
func undecided(v *PlannedVolume, accept []string) string {
	var open []string
	for _, c := range v.Checks {
		if c.Status == Decide && !slices.Contains(accept, c.Name) {
			open = append(open, c.Name+": "+c.Evidence)
		}
	}
	if len(open) == 0 {
		return ""
	}
	return "decisions are open (--accept): " + strings.Join(open, "; ")
}

// returnToBackedUp goes back to before the swap: the volume has changed since it was
// accepted, or another process has accepted it.
func (m *migration) returnToBackedUp() error {
	const most = 10
	if m.returns++; m.returns > most {
		return terminal("PersistentVolume %s is changed by another client again and again; stop that client, then resume", m.rec.Volume)
	}
	m.rec.Stage, m.acceptedVersion, m.retains = journal.BackedUp, "", false
	return errMoved
}

func podsOf(v *PlannedVolume) (all []journal.Pod) {
	for _, p := range v.Pods {
		all = append(all, journal.Pod{Name: p.Name, UID: p.UID, Node: p.Node, Owner: p.Owner})
	}
	return all
}

func modeWords(m journal.Mode) string {
	switch m {
	case journal.Rolling:
		return PodRestart.String()
	case journal.Offline:
		return Offline.String()
	}
	return Live.String()
}
