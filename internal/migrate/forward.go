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
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// backUp writes down the objects as they are, before anything is changed.
func (o *one) backUp(ctx context.Context) error {
	if _, err := o.from(ctx); err != nil {
		return err
	}
	_, raw, err := objects.PersistentVolumes().GetRaw(ctx, o.c, "", o.rec.Volume)
	if err != nil {
		return err
	}
	if err := o.asSent(raw); err != nil {
		return err
	}
	o.rec.Flex = raw
	all := [][]byte{raw}
	claim, raw, err := o.rawClaim(ctx)
	if err != nil {
		return err
	}
	if claim != nil {
		if string(claim.UID) != o.rec.ClaimUID {
			return terminal("claim %s is another one than when it was planned; plan again", o.rec.Claim)
		}
		o.rec.ClaimObject = raw
		all = append(all, raw)
	}
	related, err := o.related(ctx)
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	if err := o.r.Journal.BackUp(o.rec.Volume, append(all, related...)); err != nil {
		return fmt.Errorf("back up PersistentVolume %s: %w", o.rec.Volume, err)
	}
	return o.reach(ctx, journal.BackedUp) // Save reads the first one back
}

// asSent wants what was sent to be the volume that is to be replaced, and to be kept by what
// is made of it.
func (o *one) asSent(raw []byte) error {
	m, err := parse(raw)
	if err != nil {
		return terminal("back up PersistentVolume %s: %w", o.rec.Volume, err)
	}
	if uid := string(m.GetUID()); uid != o.rec.FromUID {
		return terminal("PersistentVolume %s is another one (uid %s) than it was (%s); plan again", o.rec.Volume, uid, o.rec.FromUID)
	}
	if err := lossless(raw, m.Object); err != nil {
		return terminal("back up PersistentVolume %s: %w", o.rec.Volume, err)
	}
	return nil
}

// owners are the kinds of what re-creates pods.
func owners() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		"StatefulSet": objects.StatefulSets().Resource, "ReplicaSet": objects.ReplicaSets().Resource,
		"Deployment": objects.Deployments().Resource, "DaemonSet": objects.DaemonSets().Resource,
	}
}

// related are the pods, what re-creates them, and the VolumeAttachments.
func (o *one) related(ctx context.Context) (all [][]byte, err error) {
	add := func(r schema.GroupVersionResource, namespace, name string) error {
		raw, err := o.c.GetRaw(ctx, r, namespace, name)
		if raw != nil && !slices.ContainsFunc(all, func(other []byte) bool { return bytes.Equal(other, raw) }) {
			all = append(all, raw)
		}
		return err
	}
	for _, p := range o.rec.Pods {
		namespace, name, _ := strings.Cut(p.Name, "/")
		kind, owner, _ := strings.Cut(p.Owner, "/")
		if err := add(objects.Pods().Resource, namespace, name); err != nil {
			return nil, err
		}
		if r, ok := owners()[kind]; ok {
			_ = add(r, namespace, owner) // only people need it
		}
	}
	attached, err := o.attachments(ctx, newWorld(o.c))
	if err != nil {
		return nil, err
	}
	for _, va := range attached {
		if err := add(objects.VolumeAttachments().Resource, "", va.Name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// attachments are those of the volume, of any creator.
func (o *one) attachments(ctx context.Context, w *world) (mine []*storagev1.VolumeAttachment, err error) {
	all, err := every(ctx, w, objects.VolumeAttachments())
	for _, va := range all {
		if volumeName(va) == o.rec.Volume || va.Spec.Attacher == o.rec.CSIDriver && attachment.Handle(va) == o.rec.VolumeHandle ||
			va.Name == attachment.Name(o.rec.VolumeHandle, o.rec.CSIDriver, va.Spec.NodeName) {
			mine = append(mine, va)
		}
	}
	return mine, err
}

// claim asks for the volume's claim; nil if it has none.
func (o *one) claim(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	namespace, name, ok := strings.Cut(o.rec.Claim, "/")
	if !ok {
		return nil, nil //nolint:nilnil // documented
	}
	return objects.Claims().Get(ctx, o.c, namespace, name)
}

// rawClaim asks for the same, and for it as the API server sends it.
func (o *one) rawClaim(ctx context.Context) (*corev1.PersistentVolumeClaim, []byte, error) {
	namespace, name, ok := strings.Cut(o.rec.Claim, "/")
	if !ok {
		return nil, nil, nil
	}
	return objects.Claims().GetRaw(ctx, o.c, namespace, name)
}

// retain keeps the data of the volume that is to be replaced; of another one
// nothing is changed.
func (o *one) retain(ctx context.Context) error {
	pv, err := o.from(ctx)
	if err != nil || pv.policy() == policyRetain {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.rec.FromUID},
		"spec":     map[string]any{"persistentVolumeReclaimPolicy": policyRetain},
	})
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	_, err = o.c.Patch(ctx, objects.PersistentVolumes().Resource, "", o.rec.Volume, types.MergePatchType, patch)
	return err
}

// retained reads the policy back: a patch that was answered well and not applied
// has cost people their data (libopenstorage/stork#871).
func (o *one) retained(ctx context.Context) error {
	pv, err := o.from(ctx)
	if err != nil {
		return err
	}
	if policy := pv.policy(); policy != policyRetain {
		return terminal("PersistentVolume %s has reclaim policy %s although the API server has taken Retain: find out who changes it", o.rec.Volume, policy)
	}
	return nil
}

// accept checks the volume once more, right before it is replaced.
func (o *one) accept(ctx context.Context) error {
	v, err := o.r.Planner.again(ctx, o.c, o.rec.Volume)
	if err != nil {
		return err
	}
	if err := o.acceptable(v); err != nil {
		return err
	}
	o.rec.Pods, o.accepted = podsOf(v), v.Original.ResourceVersion
	return nil
}

// replaceable: the pods that have to stop may be stopped, or none has the volume, or it
// stays attached under those that go on.
func (o *one) replaceable(ctx context.Context) error {
	back := o.rec.Direction == journal.ToFlexVolume
	switch {
	case back && o.handsOver(): // reattach has looked
		return nil
	case !back && o.rec.Mode == journal.Rolling:
		return o.mayEvict(ctx)
	case !o.handsOver():
		return o.letGo(ctx)
	}
	return o.staysUnattached(ctx)
}

// acceptable compares with what was planned, and what a person has decided.
func (o *one) acceptable(v *Volume) error {
	no := func(format string, args ...any) error {
		return terminal("PersistentVolume %s is not replaced: %s; resume when that is otherwise, or roll back", o.rec.Volume, fmt.Sprintf(format, args...))
	}
	switch {
	case v.Original.UID != o.rec.FromUID || v.Original.ClaimUID != o.rec.ClaimUID:
		return no("it is another one than was planned")
	case v.Method == No:
		return no("%s", strings.Join(v.Why, "; "))
	case v.Original.ReclaimPolicy != policyRetain:
		return no("its reclaim policy is %s again", v.Original.ReclaimPolicy)
	}
	if why := undecided(v, o.rec.Accept); why != "" {
		return no("%s", why)
	}
	switch {
	case v.Method == Live && o.rec.Mode == journal.Rolling: // of itself, meanwhile
		o.rec.Mode = journal.Live
	case o.rec.Mode == journal.Offline && len(v.Pods) > 0:
		return no("pod %s has begun to use the claim", v.Pods[0].Name)
	case v.Method != Live && !(v.Method == PodRestart && o.rec.Mode == journal.Rolling):
		return no("it was to be migrated %s, and is to be %s now: %s", modeWords(o.rec.Mode), v.Method, strings.Join(v.Why, "; "))
	}
	if changed := changedSince(o.rec.CSI, v.Replacement); changed != "" {
		return no("it or the configuration has been changed since it was planned: %s", changed)
	}
	return nil
}

// changedSince says where a replacement is another one than was planned. The
// original that it carries has policy Retain by now.
func changedSince(planned json.RawMessage, now *Manifest) string {
	before, err := parse(planned)
	if err != nil {
		return err.Error()
	}
	a, b := before.Object, now.DeepCopy().Object
	for _, object := range []map[string]any{a, b} {
		delete(sub(object, "metadata", "annotations"), OriginalAnnotation)
	}
	return strings.Join(append(differences(a, b, ""), additions(a, b, "")...), "; ")
}

// undecided are the decisions that are still open.
func undecided(v *Volume, accept []string) string {
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

// acceptAgain goes back to before the swap: the volume has changed since it was
// accepted, or another process has accepted it.
func (o *one) acceptAgain() error {
	const most = 10
	if o.again++; o.again > most {
		return terminal("PersistentVolume %s is changed by another client again and again; stop that client, then resume", o.rec.Volume)
	}
	o.rec.Stage, o.accepted = journal.BackedUp, ""
	return nil
}

func podsOf(v *Volume) (all []journal.Pod) {
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
