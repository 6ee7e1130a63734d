package migrate_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

const configuration = `{"apiVersion":"flex2csi.io/v1alpha1","kind":"BridgeConfiguration","drivers":[{"flexDriver":"example.com/disk","csiDriver":"disk.csi.example.com"}]}`

// A journey is a migration on the fake, with a journal on a disk and in the cluster.
type journey struct {
	t    *testing.T
	api  *api
	dir  string
	was  *corev1.PersistentVolume
	mode journal.Mode
	// config is that of the bridge.
	config  string
	decoded *bridgeconfig.Configuration
	// restore: --restore-reclaim-policy.
	restore bool
	// lease is what is asked before each change; nil: it is always held.
	lease func() error
	// told gets the events of a run; nil: they are not wanted.
	told func(migrate.Event)
	// takes is how long the API server takes to create a PersistentVolume.
	takes time.Duration
}

func newJourney(t *testing.T, pod bool, mode journal.Mode) *journey {
	t.Helper()
	all := shop(nil)
	if pod {
		all = shop(podOf())
	}
	j := &journey{t: t, api: newAPI(t, all...), dir: filepath.Join(t.TempDir(), "journal"), mode: mode, config: configuration}
	if mode != journal.Live { // as by an earlier version; a StatefulSet makes the pod
		j.api.staged, j.api.replicas = bridgestatus.StagedElsewhere, 1
		j.api.add(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "set"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1))}})
		j.api.settle()
	}
	j.was = read(j.api, objects.PersistentVolumes(), "", "pv1")
	j.api.seen = j.guard
	return j
}

// Held is the answer of the Lease.
func (j *journey) Held() error {
	if j.lease == nil {
		return nil
	}
	return j.lease()
}

// second adds another FlexVolume with its claim.
func (j *journey) second(volume, claim string) {
	j.t.Helper()
	pv := j.volume()
	pv.Name, pv.UID, pv.ResourceVersion = volume, "second", ""
	pv.Spec.FlexVolume.Options = map[string]string{"volumeID": "vol-2"}
	pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = claim, "second-claim"
	j.api.add(pv)
	c := read(j.api, objects.Claims(), "shop", "orders")
	c.Name, c.UID, c.Spec.VolumeName, c.ResourceVersion = claim, "second-claim", volume, ""
	j.api.add(c)
}

// runner is a process that has just been started.
func (j *journey) runner() *migrate.Runner {
	j.t.Helper()
	if j.decoded == nil {
		c, err := bridgeconfig.Loader{}.Decode([]byte(j.config), mapping.Check)
		if err != nil {
			j.t.Fatal(err)
		}
		j.decoded = c
	}
	client := j.api.client()
	client.Dynamic = slow{client.Dynamic, j.takes}
	return &migrate.Runner{
		Client: client, Lease: j, Now: time.Now, Planner: &migrate.Planner{Client: client, Config: j.decoded, Now: time.Now},
		Journal: journal.New(client, migrate.Namespace, j.dir),
		Options: migrate.Options{Mode: j.mode, Accept: []string{"reclaim-policy", "kubelet-restart"}, Timeout: time.Minute, RestoreReclaimPolicy: j.restore},
		Progress: func(e migrate.Event) {
			if e.What == migrate.Waiting && strings.Contains(e.Text, "uses it: stop it") {
				j.api.person(0)
			}
			if j.told != nil {
				j.told(e)
			}
		},
	}
}

// do runs a command as flex2csi does, and returns what came of the volume.
func (j *journey) do(ctx context.Context, command string) (migrate.Result, error) {
	j.t.Helper()
	r := j.runner()
	var results []migrate.Result
	var records []*journal.Record
	var err error
	switch command {
	case "apply":
		var plan *migrate.Plan
		if plan, err = r.Planner.Plan(ctx, &migrate.Selection{Names: []string{"pv1"}}); err != nil {
			return migrate.Result{}, err
		}
		tasks, left := migrate.Choose(plan, r.Options)
		if len(left) > 0 {
			return left[0], nil
		}
		results, err = r.Apply(ctx, tasks)
	case "resume":
		records, err = r.Resumable(ctx, nil)
		results, err = whole(ctx, records, err, r.Resume)
	case "rollback":
		records, err = r.Reversible(ctx, nil)
		results, err = whole(ctx, records, err, r.Rollback)
	}
	if len(results) == 0 {
		return migrate.Result{}, err
	}
	return results[0], err
}

// whole goes on with the records that can be read.
func whole(ctx context.Context, records []*journal.Record, err error, do func(context.Context, []*journal.Record) ([]migrate.Result, error)) ([]migrate.Result, error) {
	unread, err := journal.Unread(err)
	if err != nil {
		return nil, err
	}
	results, err := do(ctx, records)
	return results, errors.Join(err, unread)
}

// guard wants each request that destroys something to be safe before it has an effect.
func (j *journey) guard(action clienttesting.Action) {
	j.t.Helper()
	if dryRun(action) {
		return
	}
	switch action := action.(type) {
	case clienttesting.DeleteActionImpl:
		j.guardDelete(action)
	case clienttesting.CreateActionImpl:
		if action.GetResource().Resource == "persistentvolumes" {
			j.written(journal.BackedUp)
			u, ok := action.Object.(*unstructured.Unstructured)
			if !ok || u.GetName() != "pv1" {
				j.t.Errorf("it creates %v", action.Object)
			}
			if policy, _, _ := unstructured.NestedString(u.Object, "spec", "persistentVolumeReclaimPolicy"); policy != "Retain" {
				j.t.Errorf("it creates a volume with policy %s", policy)
			}
		}
	case clienttesting.PatchActionImpl:
		if action.GetResource().Resource == "persistentvolumes" {
			j.guardPatch(string(action.Patch))
		}
	}
}

// guardPatch wants a volume in its window to keep what is stored.
func (j *journey) guardPatch(patch string) {
	j.t.Helper()
	pv := j.volume()
	if pv == nil {
		return
	}
	if strings.Contains(patch, "finalizers") {
		j.written(journal.Deleting)
		if !strings.Contains(patch, `"/metadata/resourceVersion","value":"`+pv.ResourceVersion+`"`) { // it does not fit
			return
		}
		if policy := pv.Spec.PersistentVolumeReclaimPolicy; policy != corev1.PersistentVolumeReclaimRetain {
			j.t.Errorf("it takes the finalizers of a volume with policy %s", policy)
		}
	}
	if strings.Contains(patch, "persistentVolumeReclaimPolicy") && !strings.Contains(patch, "Retain") && (pv.DeletionTimestamp != nil || pv.Status.Phase != corev1.VolumeBound) {
		j.t.Errorf("it takes policy Retain from a volume that is %s", pv.Status.Phase)
	}
}

func (j *journey) guardDelete(action clienttesting.DeleteActionImpl) {
	j.t.Helper()
	switch action.GetResource().Resource {
	case "persistentvolumes":
	case "volumeattachments": // on the way back, one that loses its finalizer before
	default:
		j.t.Errorf("it deletes %s %s", action.GetResource().Resource, action.Name)
	}
	p := action.DeleteOptions.Preconditions
	if p == nil || p.UID == nil || p.ResourceVersion == nil {
		j.t.Fatalf("it deletes %s without preconditions", action.Name)
	}
	pv := j.volume()
	if action.GetResource().Resource != "persistentvolumes" || pv == nil || pv.ResourceVersion != *p.ResourceVersion { // it does not fit
		return
	}
	if policy := pv.Spec.PersistentVolumeReclaimPolicy; policy != corev1.PersistentVolumeReclaimRetain {
		j.t.Errorf("it deletes a volume with policy %s", policy)
	}
	rec, kept := j.written(journal.Deleting)
	if version := *action.DeleteOptions.Preconditions.ResourceVersion; rec.FromResourceVersion != version || kept.Digest != rec.Digest {
		j.t.Errorf("it deletes resourceVersion %s, and has written down\n%+v\nand in the copy\n%+v", version, rec, kept)
	}
}

// written wants the journal to have what is about to be done, and its copy both volumes, and
// returns them.
func (j *journey) written(stage journal.Stage) (rec, kept *journal.Record) {
	j.t.Helper()
	m := read(j.api, objects.ConfigMaps(), migrate.Namespace, journal.ConfigMapName("pv1"))
	if m == nil {
		j.t.Fatal("the journal has nothing")
	}
	text, err := []byte(m.Data["record.json"]), error(nil)
	if j.dir != "" {
		text, err = os.ReadFile(filepath.Join(j.dir, "pv1.json"))
	}
	if err != nil {
		j.t.Fatal(err)
	}
	rec, kept = &journal.Record{}, &journal.Record{}
	var copied corev1.ConfigMap
	if j.dir != "" {
		if err := json.Unmarshal(text, &copied); err != nil {
			j.t.Fatal(err)
		}
		text = []byte(copied.Data["record.json"])
	}
	if err := errors.Join(json.Unmarshal([]byte(m.Data["record.json"]), rec), json.Unmarshal(text, kept)); err != nil {
		j.t.Fatal(err)
	}
	if len(rec.Flex) == 0 || len(rec.CSI) == 0 || len(rec.To) == 0 || len(kept.Flex) == 0 || len(kept.CSI) == 0 {
		j.t.Errorf("the journal has\n%+v\nand its copy\n%+v", rec, kept)
	}
	order := []journal.Stage{journal.Planned, journal.BackedUp, journal.Retained, journal.Accepted, journal.Deleting, journal.Deleted, journal.Stopped, journal.Created, journal.Bound, journal.Attached, journal.TakenOver, journal.Finished}
	if slices.Index(order, rec.Stage) < slices.Index(order, stage) {
		j.t.Errorf("the journal has stage %s, and it should have come to %s", rec.Stage, stage)
	}
	return rec, kept
}

// safe wants the claim to be what it was, and no second volume to be there, wherever the
// migration is.
func (j *journey) safe() {
	j.t.Helper()
	claim := read(j.api, objects.Claims(), "shop", "orders")
	if claim == nil || claim.UID != "claim" || claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "pv1" {
		j.t.Errorf("the claim is %+v", claim)
	}
	for _, u := range j.api.objects(objects.PersistentVolumes().Resource, "PersistentVolume") {
		if name := u.GetName(); name != "pv1" && name != "pv2" {
			j.t.Errorf("there is a volume %s", name)
		}
	}
}

// isFlex wants the volume to be what it was.
func (j *journey) isFlex() {
	j.t.Helper()
	j.safe()
	now := j.volume()
	if now != nil {
		delete(now.Annotations, touched)
	}
	if now == nil || !equality.Semantic.DeepEqual(now.Spec, j.was.Spec) || !equality.Semantic.DeepEqual(now.Labels, j.was.Labels) || !equality.Semantic.DeepEqual(now.Annotations, j.was.Annotations) || now.Status.Phase != corev1.VolumeBound {
		j.t.Errorf("the volume is\n%+v\nand was\n%+v", now, j.was)
	}
}

// isCSI wants it to be the CSI volume, and the rest of it what it was.
func (j *journey) isCSI() {
	j.t.Helper()
	j.safe()
	now := read(j.api, objects.PersistentVolumes(), "", "pv1")
	if now == nil || now.Spec.CSI == nil || now.Spec.FlexVolume != nil || now.Status.Phase != corev1.VolumeBound {
		j.t.Fatalf("the volume is %+v", now)
	}
	spec := now.Spec.DeepCopy()
	spec.PersistentVolumeSource, spec.PersistentVolumeReclaimPolicy = j.was.Spec.PersistentVolumeSource, j.was.Spec.PersistentVolumeReclaimPolicy
	if !equality.Semantic.DeepEqual(*spec, j.was.Spec) || now.Spec.CSI.Driver != "disk.csi.example.com" || now.Spec.CSI.VolumeHandle != "vol-1" || now.Annotations["example.com/note"] != j.was.Annotations["example.com/note"] {
		j.t.Errorf("the volume is\n%+v\nand was\n%+v", now, j.was)
	}
}

// changes reports whether a request changes something.
func changes(request string) bool {
	verb, _, _ := strings.Cut(request, " ")
	return verb != "get" && verb != "list" && !strings.HasSuffix(request, " (dry run)") && !strings.Contains(request, "selfsubject")
}

func (j *journey) heal() { j.api.before, j.api.after, j.lease = nil, nil, nil }

// stopBefore has apply killed before a request, the first one after others.
func (j *journey) stopBefore(this string, after ...string) {
	j.t.Helper()
	killed, kill := context.WithCancel(j.t.Context())
	defer kill()
	j.api.before = func(_ int, request string) error {
		reached := !slices.ContainsFunc(after, func(other string) bool { return !j.api.requested(other) })
		if request == this && reached || killed.Err() != nil {
			kill()
			return context.Canceled
		}
		return nil
	}
	_, _ = j.do(killed, "apply")
	j.heal()
}

// volume is the PersistentVolume, whichever it is.
func (j *journey) volume() *corev1.PersistentVolume {
	return read(j.api, objects.PersistentVolumes(), "", "pv1")
}

// ends wants the journey to have come to its end: after resume at the volume that the journal
// says, after rollback at the FlexVolume.
func (j *journey) ends(then string) {
	j.t.Helper()
	rec, err := j.runner().Journal.Load(context.Background(), "pv1")
	switch {
	case err != nil:
		j.t.Error(err)
	case rec == nil: // nothing was begun
		j.isFlex()
	case rec.Unfinished():
		j.t.Errorf("it stays at %s: %s", rec.Stage, rec.Trouble)
	case then == "rollback" || rec.TakenBack():
		j.isFlex()
	default:
		j.isCSI()
	}
}

// wants wants a command to succeed.
func (j *journey) wants(ctx context.Context, command string) migrate.Result {
	j.t.Helper()
	came, err := j.do(ctx, command)
	if err != nil || came.Outcome != migrate.Done {
		j.t.Fatalf("%s: %+v, %v", command, came, err)
	}
	return came
}

// TestReached: a volume comes through the stages of its mode, each once, and when one is told the
// journal has it; Deleted it has with the next one.
func TestReached(t *testing.T) {
	for mode, want := range map[journal.Mode][]journal.Stage{
		journal.Live: {
			journal.BackedUp, journal.Retained, journal.Accepted, journal.Deleting, journal.Deleted,
			journal.Created, journal.Bound, journal.Attached, journal.TakenOver, journal.Finished,
		},
		journal.Rolling: {
			journal.BackedUp, journal.Retained, journal.Accepted, journal.Deleting, journal.Deleted, journal.Stopped,
			journal.Created, journal.Bound, journal.TakenOver, journal.Finished,
		},
		journal.Offline: {
			journal.BackedUp, journal.Retained, journal.Stopped, journal.Accepted, journal.Deleting, journal.Deleted,
			journal.Created, journal.Bound, journal.Finished,
		},
	} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, mode)
				var got []journal.Stage
				j.told = func(e migrate.Event) {
					if e.What != migrate.Reached {
						return
					}
					got = append(got, e.Stage)
					if rec, _ := j.written(journal.BackedUp); rec.Stage != e.Stage && e.Stage != journal.Deleted {
						t.Errorf("the journal has %s when %s is told", rec.Stage, e.Stage)
					}
				}
				j.wants(t.Context(), "apply")
				if !slices.Equal(got, want) {
					t.Errorf("it goes through %v, want %v", got, want)
				}
			})
		})
	}
}

// TestDeletedByAnother: where another client has deleted the volume that was accepted, its claim
// is Lost, and the new one is created although the journal cannot be written.
func TestDeletedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, false, journal.Live)
		j.api.seen = nil
		gone := false
		j.told = func(e migrate.Event) {
			if e.What == migrate.Reached && e.Stage == journal.Accepted {
				gone = true
				_ = j.api.object.Delete(objects.PersistentVolumes().Resource, "", "pv1")
			}
		}
		j.api.before = func(_ int, request string) error {
			if gone && request == "patch configmaps" && !j.api.requested("create persistentvolumes") {
				return apierrors.NewForbidden(objects.ConfigMaps().Resource.GroupResource(), "flex2csi-migration", errors.New("exceeded quota"))
			}
			return nil
		}
		if came, err := j.do(t.Context(), "apply"); j.volume() == nil {
			t.Errorf("there is no volume: %+v, %v", came, err)
		}
	})
}

// TestJournalRefused: a volume of which the journal cannot be written is left as it was, and can
// be migrated when that is otherwise.
func TestJournalRefused(t *testing.T) {
	j := newJourney(t, true, journal.Live)
	j.api.before = func(_ int, request string) error {
		if request == "create configmaps" {
			return apierrors.NewForbidden(objects.ConfigMaps().Resource.GroupResource(), "flex2csi-migration", errors.New("exceeded quota"))
		}
		return nil
	}
	came, err := j.do(t.Context(), "apply")
	if err != nil || came.Outcome != migrate.Left || !strings.Contains(came.Why, "exceeded quota") || strings.Count(came.Why, "write the journal") != 1 { // it was said twice
		t.Errorf("%+v, %v", came, err)
	}
	j.isFlex()
	j.heal()
	if came, err := j.do(t.Context(), "resume"); err != nil || came.Volume != "" {
		t.Errorf("%+v, %v", came, err)
	}
	j.wants(t.Context(), "apply")
	j.isCSI()
}

// TestDiskFull: a copy of the journal that could not be written left volumes where they were,
// also between the two PersistentVolumes.
func TestDiskFull(t *testing.T) {
	for _, mode := range []journal.Mode{journal.Live, journal.Rolling, journal.Offline} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, mode)
				j.api.after = func(_ int, request string) error {
					if request != "delete persistentvolumes" {
						return nil
					}
					j.api.seen = nil // the guard reads the copy
					return errors.Join(os.RemoveAll(j.dir), os.WriteFile(j.dir, nil, 0o600))
				}
				if came := j.wants(t.Context(), "apply"); came.Mode != mode {
					t.Errorf("it is migrated %s", came.Mode)
				}
				j.isCSI()
			})
		})
	}
}
