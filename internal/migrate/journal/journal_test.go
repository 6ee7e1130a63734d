package journal

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// A place is a cluster and a directory. test/cluster/migrate has the conflicts.
type place struct {
	t      *testing.T
	client *objects.Client
	dir    string
}

func newPlace(t *testing.T) *place {
	f := fake.NewSimpleDynamicClient(scheme.Scheme)
	f.PrependReactor("create", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).SetResourceVersion("1")
		return false, nil, nil
	})
	return &place{t: t, client: &objects.Client{Dynamic: f}, dir: filepath.Join(t.TempDir(), "journal")}
}

// journal is that of a process that has just been started.
func (p *place) journal() *Journal { return New(p.client, "flex2csi", p.dir) }

// saved is a record that has been saved some times.
func (p *place) saved(times int) *Record {
	p.t.Helper()
	r := record("pv-1")
	for j := p.journal(); times > 0; times-- {
		check(p.t, j.Save(p.t.Context(), r))
	}
	return r
}

// change changes what the ConfigMap has; empty: it is deleted.
func (p *place) change(change func(string) string) {
	p.t.Helper()
	maps := p.client.Dynamic.Resource(objects.ConfigMaps().Resource).Namespace("flex2csi")
	m, err := objects.ConfigMaps().Get(p.t.Context(), p.client, "flex2csi", ConfigMapName("pv-1"))
	check(p.t, err)
	check(p.t, maps.Delete(p.t.Context(), m.Name, metav1.DeleteOptions{}))
	text := change(m.Data[recordKey])
	if text == "" {
		return
	}
	u, err := objects.ToUnstructured(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "flex2csi", Name: m.Name, Labels: m.Labels}, Data: map[string]string{recordKey: text},
	})
	check(p.t, err)
	_, err = maps.Create(p.t.Context(), u, metav1.CreateOptions{})
	check(p.t, err)
}

func (p *place) copied(change func(string) string) {
	p.t.Helper()
	path := filepath.Join(p.dir, "pv-1.json")
	text, err := os.ReadFile(path)
	check(p.t, err)
	check(p.t, os.WriteFile(path, []byte(change(string(text))), 0o600))
}

// wants wants a process to read a record of this sequence, from Load and from List; zero: an
// error that says.
func (p *place) wants(sequence int64, says string) {
	p.t.Helper()
	r, err := p.journal().Load(p.t.Context(), "pv-1")
	all, listErr := p.journal().List(p.t.Context())
	if sequence == 0 {
		if r != nil || len(all) > 0 || err == nil || listErr == nil || !strings.Contains(err.Error(), says) || !strings.Contains(listErr.Error(), says) {
			p.t.Errorf("%+v, %v; %v, %v: want %q", r, err, all, listErr, says)
		}
		return
	}
	if err != nil || listErr != nil || len(all) != 1 || r.Sequence != sequence || all[0].Sequence != sequence {
		p.t.Errorf("%+v, %v; %v, %v: want sequence %d", r, err, all, listErr, sequence)
	}
}

func torn(text string) string { return text[:len(text)/2] }

// undigested is a record of a release before there were digests.
func undigested(text string) string {
	var r map[string]any
	if err := json.Unmarshal([]byte(text), &r); err != nil || r["digest"] == nil {
		panic(text)
	}
	delete(r, "digest")
	out, _ := json.Marshal(r)
	return string(out)
}

// TestAuthority: the ConfigMap counts, and nothing else. An unfinished migration that only its copy
// knows is lost.
func TestAuthority(t *testing.T) {
	gone := func(string) string { return "" }
	for name, test := range map[string]struct {
		cluster, copied func(string) string
		sequence        int64
		says            string
	}{
		"both":                    {nil, nil, 3, ""},
		"a copy that is ahead":    {func(s string) string { return strings.Replace(undigested(s), `"sequence":3`, `"sequence":2`, 1) }, nil, 2, ""},
		"a torn copy":             {nil, torn, 3, ""},
		"deleted":                 {gone, nil, 0, "ConfigMap " + ConfigMapName("pv-1") + " was deleted, and by its copy the migration has come to BackedUp and is not finished; kubectl create -f "},
		"an old record":           {undigested, nil, 3, ""},
		"torn":                    {torn, nil, 0, "if its copy in the directory of the journal is right, kubectl replace -f that"},
		"changed":                 {func(s string) string { return strings.Replace(s, `"BackedUp"`, `"Finished"`, 1) }, nil, 0, "its digest is not that of what it says"},
		"changed in an object":    {func(s string) string { return strings.Replace(s, "example.com/disk", "example.com/other", 1) }, nil, 0, "its digest is not that of what it says"},
		"of another volume":       {func(s string) string { return strings.Replace(undigested(s), `"volume":"pv-1"`, `"volume":"pv-2"`, 1) }, nil, 0, `about volume "pv-2"`},
		"of another release":      {func(s string) string { return strings.Replace(s, "v1alpha1", "v2", 1) }, nil, 0, "the release of flex2csi that has written it"},
		"deleted, a changed copy": {gone, func(s string) string { return strings.Replace(s, `\"BackedUp\"`, `\"Finished\"`, 1) }, 0, "its digest is not that of what it says"},
		"deleted, a torn copy":    {gone, torn, 0, "backup/pv-1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.saved(3)
			if test.cluster != nil {
				p.change(test.cluster)
			}
			if test.copied != nil {
				p.copied(test.copied)
			}
			p.wants(test.sequence, test.says)
		})
	}
}

// TestRestored: the copy is what kubectl create makes the ConfigMap of, and one of a migration that
// has ended is no loss.
func TestRestored(t *testing.T) {
	p := newPlace(t)
	p.saved(2)
	p.change(func(string) string { return "" })
	if _, err := p.journal().Load(t.Context(), "pv-1"); err == nil {
		t.Fatal("it is not missed")
	}
	create := func() {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(p.dir, "pv-1.json"))
		check(t, err)
		var u unstructured.Unstructured
		check(t, u.UnmarshalJSON(text))
		_, err = p.client.Dynamic.Resource(objects.ConfigMaps().Resource).Namespace(u.GetNamespace()).Create(t.Context(), &u, metav1.CreateOptions{})
		check(t, err)
	}
	create()
	p.wants(2, "")
	j := p.journal()
	r, err := j.Load(t.Context(), "pv-1")
	check(t, err)
	r.Stage = Finished
	check(t, j.Save(t.Context(), r))
	p.change(func(string) string { return "" })
	all, listErr := j.List(t.Context())
	if r, err := j.Load(t.Context(), "pv-1"); r != nil || err != nil || len(all) > 0 || listErr != nil {
		t.Errorf("%+v, %v; %v, %v", r, err, all, listErr)
	}
}

// TestNoCopy: nothing is begun or gone on with if the copy cannot be written, and the record
// stays as it was.
func TestNoCopy(t *testing.T) {
	p := newPlace(t)
	check(t, os.WriteFile(p.dir, nil, 0o600))
	r := record("pv-1")
	if err := p.journal().Save(t.Context(), r); err == nil || r.Sequence != 0 {
		t.Errorf("%v, sequence %d", err, r.Sequence)
	}
	if err := p.journal().BackUp("pv-1", [][]byte{[]byte(flexVolume)}); err == nil {
		t.Error("it was backed up")
	}
}

// TestReadBack: what the first write has left in the cluster is compared.
func TestReadBack(t *testing.T) {
	p := newPlace(t)
	r := p.saved(1)
	data, err := encode(r)
	check(t, err)
	check(t, p.journal().verify(t.Context(), r, data))
	p.change(torn)
	if err := p.journal().verify(t.Context(), r, data); err == nil || !strings.Contains(err.Error(), "ConfigMap flex2csi/flex2csi-migration-") {
		t.Errorf("a torn ConfigMap: %v", err)
	}
}

// TestTooBig: that is found out before anything is done.
func TestTooBig(t *testing.T) {
	p := newPlace(t)
	r := record("pv-1")
	r.CSI = json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	if err := p.journal().Save(t.Context(), r); !errors.Is(err, ErrTooBig) {
		t.Error(err)
	}
	if _, err := os.Stat(p.dir); err == nil {
		t.Error("there is a copy of what is not in the cluster")
	}
}
