package migrate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// aRecord is one with the volume as the API server sends it.
func (w *world) aRecord(c *objects.Client, volume string) *journal.Record {
	w.t.Helper()
	w.made(c, volume)
	object, err := c.GetRaw(w.t.Context(), pvs(), "", volume)
	w.check(err)
	return &journal.Record{Volume: volume, Stage: journal.BackedUp, Mode: journal.Live, Direction: journal.ToCSI, Flex: []byte(strings.TrimSpace(string(object)))}
}

func (w *world) same(got *journal.Record, err error, want *journal.Record) {
	w.t.Helper()
	w.check(err)
	if d := cmp.Diff(want, got); d != "" {
		w.t.Fatal(d)
	}
}

// testJournalInCluster: what one has written another one reads, and does not
// overwrite without having read it.
func testJournalInCluster(w *world) {
	x := w.Proxy()
	c := w.clusterAt(x)
	ctx := w.t.Context()
	one, two := journal.New(c, migrate.Namespace, ""), journal.New(w.admin(), migrate.Namespace, "")
	r := w.aRecord(c, "pv-in-cluster")
	if r, err := one.Load(ctx, r.Volume); r != nil || err != nil {
		w.t.Fatal(r, err)
	}
	w.check(one.Save(ctx, r))
	got, err := two.Load(ctx, r.Volume)
	w.same(got, err, r)
	if string(got.Flex) != string(r.Flex) {
		w.t.Errorf("the volume is not what it was: %s", got.Flex)
	}
	r.Stage = journal.Retained
	w.check(one.Save(ctx, r))

	got.Stage = journal.Accepted
	if err := two.Save(ctx, got); !errors.Is(err, journal.ErrConflict) || got.Sequence != 1 {
		w.t.Fatal(err, got.Sequence)
	}
	blind := &journal.Record{Volume: r.Volume}
	if err := journal.New(c, migrate.Namespace, "").Save(ctx, blind); !errors.Is(err, journal.ErrConflict) {
		w.t.Fatal(err)
	}
	all, err := two.List(ctx)
	w.check(err)
	if len(all) != 1 {
		w.t.Fatal(all)
	}
	w.same(all[0], nil, r)
	all[0].Trouble = strings.Repeat("ä", 3000)
	w.check(two.Save(ctx, all[0])) // what was listed was read
	got, err = one.Load(ctx, r.Volume)
	w.same(got, err, all[0])

	// An answer that gets lost is no conflict with oneself, whatever is written
	// next.
	r, err = one.Load(ctx, r.Volume)
	w.check(err)
	for _, after := range []bool{true, false} {
		x.Fail(controlplane.Fault{Verb: "patch", Resource: "configmaps", After: after, Times: 2})
		before := r.Sequence
		for _, trouble := range []string{"first", "second"} {
			r.Trouble = trouble
			if err := one.Save(ctx, r); objects.OutcomeOf(err) != objects.Unknown || r.Sequence != before {
				w.t.Fatal(err, r.Sequence)
			}
		}
		r.Trouble = ""
		w.check(one.Save(ctx, r))
		got, err = two.Load(ctx, r.Volume)
		w.same(got, err, r)
		if r.Sequence != before+1 {
			w.t.Errorf("sequence %d after %d", r.Sequence, before)
		}
	}

	// Another program has deleted it: it is there again.
	maps := w.Admin().CoreV1().ConfigMaps(migrate.Namespace)
	w.check(maps.Delete(ctx, journal.ConfigMapName(r.Volume), metav1.DeleteOptions{}))
	w.check(one.Save(ctx, r))

	// Another program has broken it.
	m, err := maps.Get(ctx, journal.ConfigMapName(r.Volume), metav1.GetOptions{})
	w.check(err)
	m.Data["record.json"] = m.Data["record.json"][:100]
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	w.check(err)
	if _, err := one.Load(ctx, r.Volume); !errors.Is(err, journal.ErrUnreadable) {
		w.t.Error(err)
	}
	if all, err := one.List(ctx); !errors.Is(err, journal.ErrUnreadable) || len(all) != 0 {
		w.t.Error(all, err)
	}
	w.check(one.Save(ctx, r))
}

// testJournalTooBig: that is found out before anything is done.
func testJournalTooBig(w *world) {
	c := w.admin()
	r := &journal.Record{Volume: "too-big"}
	object, err := json.Marshal(map[string]string{"x": strings.Repeat("x", 1<<20)})
	w.check(err)
	r.Flex = object
	if err := journal.New(c, migrate.Namespace, w.t.TempDir()).Save(w.t.Context(), r); !errors.Is(err, journal.ErrTooBig) {
		w.t.Error(err)
	}
	_, err = w.Admin().CoreV1().ConfigMaps(migrate.Namespace).Get(w.t.Context(), journal.ConfigMapName(r.Volume), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		w.t.Error(err)
	}
}

// testJournalCopied: the ConfigMap counts, and its copy is what kubectl create makes it of again.
func testJournalCopied(w *world) {
	x := w.Proxy()
	c := w.clusterAt(x)
	ctx := w.t.Context()
	here := filepath.Join(w.t.TempDir(), "here")
	at := func(dir string) *journal.Journal { return journal.New(c, migrate.Namespace, dir) } // as a process that begins
	j := at(here)
	r := w.aRecord(c, "pv-copied")
	loaded := func(dir string) *journal.Record {
		w.t.Helper()
		got, err := at(dir).Load(ctx, r.Volume)
		w.check(err)
		all, err := at(dir).List(ctx)
		w.check(err)
		i := slices.IndexFunc(all, func(o *journal.Record) bool { return o.Volume == r.Volume })
		if i < 0 {
			w.t.Fatal("it is not listed")
		}
		w.same(all[i], nil, got)
		return got
	}
	w.check(j.Save(ctx, r))
	w.same(loaded(here), nil, r)

	// The cluster did not hear of the last one.
	x.Fail(controlplane.Fault{Verb: "patch", Resource: "configmaps", Times: 1})
	next := *r
	next.Stage = journal.Retained
	if err := j.Save(ctx, &next); objects.OutcomeOf(err) != objects.Unknown {
		w.t.Fatal(err)
	}
	w.same(loaded(here), nil, r)

	// Another machine goes on; the copy here is behind, and does not count.
	elsewhere := at(filepath.Join(w.t.TempDir(), "elsewhere"))
	other, err := elsewhere.Load(ctx, r.Volume)
	w.check(err)
	other.Stage = journal.Accepted
	w.check(elsewhere.Save(ctx, other))
	w.same(loaded(here), nil, other)
	if err := j.Save(ctx, &next); !errors.Is(err, journal.ErrConflict) {
		w.t.Fatal(err)
	}
	w.same(loaded(here), nil, other)

	// The copy is torn, and written with the next one; then the ConfigMap is deleted.
	path := filepath.Join(here, r.Volume+".json")
	w.check(os.Truncate(path, 100))
	j = at(here)
	r, err = j.Load(ctx, r.Volume)
	w.same(r, err, other)
	w.check(j.Save(ctx, r))
	maps := w.Admin().CoreV1().ConfigMaps(migrate.Namespace)
	w.check(maps.Delete(ctx, journal.ConfigMapName(r.Volume), metav1.DeleteOptions{}))
	if _, err := at(here).Load(ctx, r.Volume); !strings.Contains(fmt.Sprint(err), "kubectl create -f "+path) {
		w.t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	w.check(err)
	w.check(os.Truncate(path, 100))
	if got, err := at(here).Load(ctx, r.Volume); !errors.Is(err, journal.ErrUnreadable) || !strings.Contains(err.Error(), path) {
		w.t.Fatal(got, err)
	}
	if all, err := at(here).List(ctx); !errors.Is(err, journal.ErrUnreadable) {
		w.t.Fatal(all, err)
	}
	var m corev1.ConfigMap
	w.check(json.Unmarshal(text, &m))
	_, err = maps.Create(ctx, &m, metav1.CreateOptions{})
	w.check(err)
	r, err = at(here).Load(ctx, r.Volume)
	w.check(err)
	w.check(j.Save(ctx, r))
	w.same(loaded(here), nil, r)

	// While the API server is away nothing is known: the copy may be an old one.
	x.Away()
	if got, err := at(here).Load(ctx, r.Volume); objects.OutcomeOf(err) != objects.Unknown {
		w.t.Fatal(got, err)
	}
}
