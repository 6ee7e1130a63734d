package migrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

const (
	flexJSON = `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv1","uid":"old","resourceVersion":"7","finalizers":["kubernetes.io/pv-protection"]},` +
		`"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain","claimRef":{"kind":"PersistentVolumeClaim","namespace":"shop","name":"orders","uid":"claim","resourceVersion":"3"},` +
		`"flexVolume":{"driver":"example.com/disk","options":{"volumeID":"vol-1"}}},"status":{"phase":"Bound"}}`
	claimJSON = `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"namespace":"shop","name":"orders","uid":"claim"},"spec":{"volumeName":"pv1"},"status":{"phase":"Lost"}}`
)

// lost is a cluster in which a claim has lost its PersistentVolume. It notes what
// is to be created.
type lost struct {
	*api
	creates int
	posted  any
}

// newLost returns one that answers each creation of a volume with an error.
func newLost(t *testing.T, answer error) *lost {
	claim := &corev1.PersistentVolumeClaim{}
	if err := json.Unmarshal([]byte(claimJSON), claim); err != nil {
		t.Fatal(err)
	}
	c := &lost{api: newAPI(t, claim)}
	c.seen = func(a clienttesting.Action) {
		if create, ok := a.(clienttesting.CreateActionImpl); ok && a.GetResource().Resource == "persistentvolumes" {
			c.creates, c.posted = c.creates+1, create.Object
		}
	}
	c.after = func(_ int, request string) error {
		if request == "create persistentvolumes" {
			_ = c.object.Delete(objects.PersistentVolumes().Resource, "", "pv1")
			return answer
		}
		return nil
	}
	return c
}

type always struct{}

func (always) Held() error { return nil }

// deleted is the record of a migration that has stopped where there is no volume.
func deleted() *journal.Record {
	c, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	if err != nil {
		panic(err)
	}
	csiJSON, _, err := migrate.Render(context.Background(), c, []byte(flexJSON))
	if err != nil {
		panic(err)
	}
	return &journal.Record{
		Volume: "pv1", Claim: "shop/orders", ClaimUID: "claim", FlexDriver: "example.com/disk", CSIDriver: "disk.csi.example.com", VolumeHandle: "vol-1",
		Mode: journal.Live, Direction: journal.ToCSI, Stage: journal.Deleted, FromUID: "old",
		Flex: json.RawMessage(flexJSON), CSI: json.RawMessage(csiJSON), To: json.RawMessage(csiJSON), ClaimObject: json.RawMessage(claimJSON),
	}
}

// goOn writes a record into a journal as another program would, and goes on with it.
func goOn(ctx context.Context, t *testing.T, c *lost, rec *journal.Record, back bool) (results []migrate.Result, err error) {
	t.Helper()
	store := journal.New(c.client(), migrate.Namespace, filepath.Join(t.TempDir(), "journal"))
	if err := store.Save(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	config, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	r := &migrate.Runner{Client: c.client(), Planner: &migrate.Planner{Config: config}, Journal: store, Lease: always{}, Now: time.Now, Options: migrate.Options{Timeout: time.Second}}
	records, err := r.Resumable(ctx, []string{"pv1"})
	if back {
		records, err = r.Reversible(ctx, []string{"pv1"})
	}
	if err != nil {
		return nil, err
	}
	if back {
		return r.Rollback(ctx, records)
	}
	return r.Resume(ctx, records)
}

// TestForged: who may write ConfigMaps may write the journal. Nothing is
// created from it but the volume itself, as what it was or is to be.
func TestForged(t *testing.T) {
	change := func(object *json.RawMessage, before, after string) {
		text := strings.ReplaceAll(string(*object), before, after)
		if text == string(*object) {
			t.Helper()
			t.Fatalf("nothing to forge: %s", before)
		}
		*object = json.RawMessage(text)
	}
	const csi, flex = `"csi":{"driver":"disk.csi.example.com","volumeHandle":"vol-1"}`, `"flexVolume":{"driver":"example.com/disk","options":{"volumeID":"vol-1"}}`
	for name, test := range map[string]struct {
		forge func(*journal.Record)
		back  bool
		says  string
	}{
		"as it was":        {forge: func(*journal.Record) {}},
		"as it was, back":  {forge: func(*journal.Record) {}, back: true},
		"expanded":         {forge: func(r *journal.Record) { change(&r.To, `"1Gi"`, `"2Gi"`) }},
		"another name":     {func(r *journal.Record) { change(&r.To, `"pv1"`, `"other"`) }, false, "metadata.name"},
		"another name too": {func(r *journal.Record) { change(&r.To, `"pv1"`, `"other"`); change(&r.CSI, `"pv1"`, `"other"`) }, false, "metadata.name"},
		"a hostPath": {func(r *journal.Record) {
			change(&r.To, csi, `"hostPath":{"path":"/"}`)
			change(&r.CSI, csi, `"hostPath":{"path":"/"}`)
		}, false, "spec.hostPath"},
		"a hostPath as well":   {func(r *journal.Record) { change(&r.To, csi, csi+`,"hostPath":{"path":"/"}`); r.CSI = r.To }, false, "spec.hostPath"},
		"a hostPath back":      {func(r *journal.Record) { change(&r.Flex, flex, `"hostPath":{"path":"/"}`) }, true, "spec.hostPath"},
		"another CSI driver":   {func(r *journal.Record) { change(&r.To, "disk.csi", "other.csi"); r.CSI = r.To }, false, "spec.csi.driver"},
		"another handle":       {func(r *journal.Record) { change(&r.To, `"vol-1"`, `"vol-2"`); r.CSI = r.To }, false, "spec.csi.volumeHandle"},
		"another handle in to": {func(r *journal.Record) { change(&r.To, `"vol-1"`, `"vol-2"`) }, false, "volumeHandle"},
		"another Flex driver":  {func(r *journal.Record) { change(&r.Flex, "example.com/disk", "example.com/other") }, true, "spec.flexVolume.driver"},
		"a FlexVolume for CSI": {func(r *journal.Record) { change(&r.To, csi, flex); r.CSI = r.To }, false, "spec.flexVolume"},
		"no source":            {func(r *journal.Record) { change(&r.To, ","+csi, ""); r.CSI = r.To }, false, "spec.csi"},
		"another claim":        {func(r *journal.Record) { change(&r.To, `"orders"`, `"theirs"`); r.CSI = r.To }, false, "spec.claimRef"},
		"another claim's UID":  {func(r *journal.Record) { change(&r.To, `"claim"`, `"theirs"`); r.CSI = r.To }, false, "spec.claimRef"},
		"another namespace":    {func(r *journal.Record) { change(&r.To, `"shop"`, `"theirs"`); r.CSI = r.To }, false, "spec.claimRef"},
		"no claim":             {func(r *journal.Record) { r.Claim, r.ClaimUID = "", "" }, false, "spec.claimRef"},
		"deleted with it":      {func(r *journal.Record) { change(&r.To, `"Retain"`, `"Delete"`); r.CSI = r.To }, false, "persistentVolumeReclaimPolicy"},
		"another kind":         {func(r *journal.Record) { change(&r.To, `"PersistentVolume"`, `"Pod"`); r.CSI = r.To }, false, "kind"},
		"a field that is new":  {func(r *journal.Record) { change(&r.To, csi, csi+`,"new":{"path":"/"}`); r.CSI = r.To }, false, "spec.new"},
		"a finalizer":          {func(r *journal.Record) { change(&r.To, `"labels":`, `"finalizers":["x/y"],"labels":`); r.CSI = r.To }, false, "metadata.finalizers"},
		"no direction":         {func(r *journal.Record) { r.Direction = "" }, false, "direction"},
		"a name that is no one": {func(r *journal.Record) {
			change(&r.To, `"driver":"disk.csi.example.com"`, `"driver":["disk.csi.example.com"]`)
			r.CSI = r.To
		}, false, "spec.csi.driver"},
	} {
		t.Run(name, func(t *testing.T) {
			c, rec := newLost(t, context.Canceled), deleted() // the test ends with it
			test.forge(rec)
			results, err := goOn(t.Context(), t, c, rec, test.back)
			said := fmt.Sprint(err, results)
			switch {
			case test.says == "" && (err != nil || c.creates != 1):
				t.Errorf("%d creates: %s", c.creates, said)
			case test.says != "" && c.creates > 0:
				t.Errorf("it would create %v", c.posted)
			case !strings.Contains(said, test.says):
				t.Errorf("no %q in %s", test.says, said)
			}
		})
	}
}

// TestExists: an API server that says again and again that there is what is not
// there is asked with pauses.
func TestExists(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c := newLost(t, apierrors.NewAlreadyExists(objects.PersistentVolumes().Resource.GroupResource(), "pv1"))
	if _, err := goOn(ctx, t, c, deleted(), false); err != nil {
		t.Fatal(err)
	}
	if n := c.creates; n < 2 || n > 10 {
		t.Errorf("%d creates in a second", n)
	}
}
