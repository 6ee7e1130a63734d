package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/nodevolumes"
)

// Reversible are the records of volumes that can be taken back, finished or not:
// of these volumes, or, without names, of all. Where the journal is lost a
// record is made of what the PersistentVolume itself says.
func (r *Runner) Reversible(ctx context.Context, names []string) ([]*journal.Record, error) {
	known := map[string]*journal.Record{}
	all, err := r.Journal.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, rec := range all {
		known[rec.Volume] = rec
	}
	migrated, err := newWorld(r.Cluster).list(ctx, persistentVolumes(), clusterview.Selector{Labels: MigratedLabel + "=true"})
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, pv := range migrated {
		there[pv.name()] = true
		if rec := known[pv.name()]; rec != nil && !(rec.Stage == journal.Finished && rec.Direction == journal.ToFlexVolume) {
			continue
		}
		rec, err := recordOf(pv)
		switch {
		case err == nil:
			known[pv.name()] = rec
		case slices.Contains(names, pv.name()):
			return nil, err
		}
	}
	for name, rec := range known { // whose volume is gone with its claim
		if len(names) == 0 && !rec.Unfinished() && !there[name] {
			delete(known, name)
		}
	}
	return choose(known, names)
}

// choose takes those that can be taken back.
func choose(known map[string]*journal.Record, names []string) (all []*journal.Record, err error) {
	reversible := func(rec *journal.Record) bool {
		return rec != nil && (rec.Unfinished() || rec.Direction == journal.ToCSI)
	}
	if len(names) == 0 {
		for _, rec := range known {
			if reversible(rec) {
				all = append(all, rec)
			}
		}
		slices.SortFunc(all, func(a, b *journal.Record) int { return strings.Compare(a.Volume, b.Volume) })
		return all, nil
	}
	for _, name := range names {
		switch rec := known[name]; {
		case rec == nil:
			return nil, fmt.Errorf("PersistentVolume %s was not migrated: the journal has nothing of it, and it has no annotation %s", name, OriginalAnnotation)
		case !reversible(rec):
			return nil, fmt.Errorf("PersistentVolume %s has been taken back already", name)
		default:
			all = append(all, rec)
		}
	}
	return all, nil
}

// recordOf makes a record of a volume that was migrated, of which nothing else is
// left.
func recordOf(pv *Object) (*journal.Record, error) {
	original := pv.pairs("metadata", "annotations")[OriginalAnnotation]
	old, err := ParseObject([]byte(original))
	if err != nil || old.sub("spec", "flexVolume") == nil || old.name() != pv.name() {
		return nil, fmt.Errorf("PersistentVolume %s has no FlexVolume in its annotation %s, and the journal has nothing of it", pv.name(), OriginalAnnotation)
	}
	csi, err := asItIs(pv)
	if err != nil {
		return nil, err
	}
	rec := &journal.Record{
		Volume: pv.name(), ClaimUID: pv.text("spec", "claimRef", "uid"),
		FlexDriver: old.text("spec", "flexVolume", "driver"), CSIDriver: pv.text("spec", "csi", "driver"), VolumeHandle: pv.text("spec", "csi", "volumeHandle"),
		Attaches: true, Mode: journal.Live, Direction: journal.ToCSI, Stage: journal.Finished,
		Flex: json.RawMessage(original), CSI: csi, To: csi, CreatedUID: pv.uid(),
	}
	if ref := pv.sub("spec", "claimRef"); ref != nil {
		rec.Claim = ref.text("namespace") + "/" + ref.text("name")
	}
	return rec, nil
}

// Rollback takes volumes back.
func (r *Runner) Rollback(ctx context.Context, records []*journal.Record) ([]Result, error) {
	jobs := make([]job, 0, len(records))
	for _, rec := range records {
		jobs = append(jobs, job{record: rec, begin: func(ctx context.Context) (*one, error) { return r.back(ctx, rec) }})
	}
	return r.each(ctx, jobs)
}

// back turns a record round, from wherever the volume really is.
func (r *Runner) back(ctx context.Context, rec *journal.Record) (*one, error) {
	if rec.Direction == journal.ToFlexVolume {
		return r.resume(ctx, rec)
	}
	if err := r.unchanged(ctx, rec); err != nil {
		return nil, err
	}
	o := r.one(rec)
	return o, o.insist(ctx, o.turnRound)
}

// turnRound looks how far the volume has come, and makes of that the beginning
// of the way back.
func (o *one) turnRound(ctx context.Context) error {
	is, pv, err := o.look(ctx)
	if err != nil {
		return err
	}
	rec := o.rec
	mode := journal.Live
	if o.r.Options.Mode == journal.Offline {
		mode = journal.Offline
	}
	if is == foreign && pv.uid() == rec.CreatedUID && !pv.deleting() { // a webhook has made something else of it
		is = created
	}
	switch is {
	case before: // nothing but Retain was done
		if err := o.touch(ctx); err != nil {
			return err
		}
		o.turnTo(rolledBack)
		rec.CreatedUID = pv.uid()
		return o.reach(ctx, journal.TakenOver)
	case deleting, gone: // it is created again
		if is == gone {
			if err := o.sameCluster(ctx); err != nil {
				return err
			}
		}
		o.turnTo(rolledBack)
		return o.reach(ctx, journal.Deleting)
	case other: // somebody else has created it again
		o.turnTo(rolledBack)
		rec.CreatedUID = pv.uid()
		return o.reach(ctx, journal.Created)
	case created: // the same once more, with the two exchanged
		if rec.CSI, err = asItIs(pv); err != nil {
			return err
		}
		o.turnTo("")
		rec.Times, rec.FromUID, rec.Mode = nil, pv.uid(), mode
		if rec.To, err = withCapacity(rec.To, pv); err != nil {
			return err
		}
		return o.reach(ctx, journal.BackedUp)
	}
	return o.notOurs(is, pv)
}

// touch changes the resourceVersion of the volume, if it was about to be deleted:
// a DELETE that was not answered may still come, and must not fit.
func (o *one) touch(ctx context.Context) error {
	if o.rec.FromResourceVersion == "" {
		return nil
	}
	for _, value := range []any{o.r.Now().UTC().Format(time.RFC3339Nano), nil} {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": o.rec.FromUID, "annotations": map[string]any{MigratedLabel: value},
		}})
		if err != nil {
			return err
		}
		if err := o.held(); err != nil {
			return err
		}
		if _, err := o.c.PatchObject(ctx, persistentVolumes(), "", o.rec.Volume, clusterview.MergePatch, patch); err != nil {
			return err
		}
	}
	return nil
}

// rolledBack is in Record.PutBack when a person has asked for it half-way: all
// have the old volume still, and nobody has to be waited for.
const rolledBack = "a rollback was asked for"

// turnTo has the record go in the other direction.
func (o *one) turnTo(why string) {
	o.turn()
	o.rec.PutBack = why
}

// asItIs is a volume as it would be created again.
func asItIs(pv *Object) (json.RawMessage, error) {
	object := tree(Stripped(pv))
	object.sub("spec")["persistentVolumeReclaimPolicy"] = policyRetain
	return encode(object)
}

// withCapacity carries an expansion back.
func withCapacity(to json.RawMessage, pv *Object) (json.RawMessage, error) {
	object, err := ParseObject(to)
	if err != nil {
		return nil, err
	}
	if capacity := pv.sub("spec", "capacity"); capacity != nil {
		object.sub("spec")["capacity"] = clone(map[string]any(capacity))
	}
	return encode(object.tree)
}

// acceptFlex looks at all that the way back needs, right before.
func (o *one) acceptFlex(ctx context.Context) error {
	if o.rec.Mode == journal.Offline {
		if err := o.empty(ctx); err != nil {
			return err
		}
	}
	if err := o.withoutFinalizers(ctx); err != nil {
		return err
	}
	pv, err := o.from(ctx)
	if err != nil {
		return err
	}
	no := func(format string, args ...any) error {
		return surprised("PersistentVolume %s is not taken back: %s; resume when that is otherwise", o.rec.Volume, fmt.Sprintf(format, args...))
	}
	if policy := pv.text("spec", "persistentVolumeReclaimPolicy"); policy != policyRetain {
		return no("its reclaim policy is %s again", policy)
	}
	claim, err := o.claim(ctx)
	if err != nil {
		return err
	}
	if uid := pv.text("spec", "claimRef", "uid"); uid != o.rec.ClaimUID {
		return no("another claim has it (uid %s)", uid)
	}
	o.rec.ClaimObject = nil
	if claim != nil && claim.uid() == o.rec.ClaimUID {
		if claim.deleting() {
			return no("claim %s is being deleted", o.rec.Claim)
		}
		o.rec.ClaimObject = slices.Clone(claim.Raw)
	}
	if err := o.dryRun(ctx, no); err != nil {
		return err
	}
	if err := o.usersGoOn(ctx, no); err != nil { // the last, as pods come and go
		return err
	}
	if err := o.reach(ctx, journal.Accepted); err != nil {
		return err
	}
	o.accepted = pv.text("metadata", "resourceVersion")
	return nil
}

// withoutFinalizers waits until the volume has none but those that are taken
// away. An external-provisioner takes its own away some time after the policy is
// Retain again.
func (o *one) withoutFinalizers(ctx context.Context) error {
	return o.wait(ctx, waitFor{
		what: "PersistentVolume " + o.rec.Volume,
		look: func(ctx context.Context, _ *Object) (string, error) {
			pv, err := o.from(ctx)
			if err != nil {
				return "", err
			}
			if f := foreignFinalizer(pv); f != "" {
				return "it has the finalizer " + f + ": whoever has set it has to take it away", nil
			}
			return "", nil
		},
	})
}

// usersGoOn looks whether pods that have the volume can go on with it as a
// FlexVolume: by the bridge of their node, which must be there for it.
func (o *one) usersGoOn(ctx context.Context, no func(string, ...any) error) error {
	users, err := o.users(ctx)
	if err != nil {
		return err
	}
	w := newWorld(o.c)
	o.rec.Pods = nil
	for _, pod := range users {
		p := journal.Pod{Name: pod.full(), UID: pod.uid(), Node: pod.text("spec", "nodeName")}
		if p.Owner, err = w.owner(ctx, pod); err != nil {
			return err
		}
		o.rec.Pods = append(o.rec.Pods, p)
		if p.Node == "" {
			continue
		}
		if o.rec.Mode == journal.Offline {
			return no("pod %s has begun to use the claim", p.Name)
		}
		why, err := o.bridgeFor(ctx, w, p)
		if err != nil {
			return err
		}
		if why != "" {
			return no("%s, and pod %s uses it there; stop its pods (--offline)", why, p.Name)
		}
	}
	if !o.handsOver() {
		return o.letGo(ctx)
	}
	return o.reattach(ctx)
}

// bridgeFor says why the bridge of a pod's node would not mount the volume;
// empty: it does.
func (o *one) bridgeFor(ctx context.Context, w *world, p journal.Pod) (why string, err error) {
	node, err := w.get(ctx, nodes(), "", p.Node)
	if err != nil {
		return "", err
	}
	if node == nil || !ready(node.tree) {
		return "node " + p.Node + " is not Ready", nil
	}
	b := w.bridge(ctx, p.Node)
	if b.document == nil {
		return "the bridge of node " + p.Node + " does not say what it has (ConfigMap " + nodevolumes.Namespace + "/" + p.Node + ") " + b.problem, nil
	}
	if b.document.BootID != node.text("status", "nodeInfo", "bootID") {
		return "the bridge of node " + p.Node + " has said nothing since that was started", nil
	}
	if !b.document.Serves(o.rec.FlexDriver) {
		return "the bridge of node " + p.Node + " does not serve FlexVolume driver " + o.rec.FlexDriver, nil
	}
	if v := b.document.Find(o.rec.CSIDriver, o.rec.VolumeHandle); v != nil && (v.InDoubt || v.Staged == nodevolumes.StagedElsewhere) {
		return "something is under way or was left half-way with the volume on node " + p.Node, nil
	}
	return "", nil
}

// dryRun has the API server accept the FlexVolume.
func (o *one) dryRun(ctx context.Context, no func(string, ...any) error) error {
	object, err := ParseObject(o.rec.To)
	if err != nil {
		return err
	}
	j := &judge{w: newWorld(o.c), v: &Volume{Name: o.rec.Volume, Replacement: object}}
	j.checkDryRun(ctx)
	for _, c := range j.v.Checks {
		if c.Status == Fails {
			return no("%s", c.Evidence)
		}
	}
	return nil
}

// sameCluster: a record of another cluster would create its volume in this one.
func (o *one) sameCluster(ctx context.Context) error {
	claim, err := o.claim(ctx)
	if err != nil {
		return err
	}
	if len(o.rec.ClaimObject) == 0 {
		if o.inWindow() {
			return nil
		}
		return surprised("PersistentVolume %s is gone, and had no claim: it is not created again for nobody; the journal has it", o.rec.Volume)
	}
	if claim == nil || claim.uid() != o.rec.ClaimUID {
		return surprised("neither PersistentVolume %s nor its claim %s (uid %s) is in this cluster: is it the right one? The journal has both", o.rec.Volume, o.rec.Claim, o.rec.ClaimUID)
	}
	return nil
}
