package migrate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/controlplane"
)

// TestPresets: the API server takes the replacement of each preset's examples,
// and the claim is bound to it.
func TestPresets(t *testing.T) {
	w := &world{Plane: controlplane.Start(t), t: t}
	w.StartControllerManager()
	presets, err := bridgeconfig.Presets()
	w.check(err)
	var replaced int
	for _, p := range presets {
		t.Run(p.Name, func(t *testing.T) {
			w := w.with(t)
			config, input := w.example(p)
			driver := config.Drivers[0].CSIDriver
			w.object(input, "CSIDriver", func(data []byte) {
				var d storagev1.CSIDriver
				w.check(yaml.Unmarshal(data, &d))
				w.CSIDriver(d.Name, d.Spec)
			})
			w.Node("node-"+p.Name, controlplane.NodeDriver{Name: driver, NodeID: "id"})
			w.object(input, "Secret", func(data []byte) {
				var s corev1.Secret
				w.check(yaml.Unmarshal(data, &s))
				w.Namespace(s.Namespace)
				_, err := w.Admin().CoreV1().Secrets(s.Namespace).Create(t.Context(), &s, metav1.CreateOptions{})
				w.check(err)
			})
			w.object(input, "PersistentVolume", func(data []byte) {
				var pv corev1.PersistentVolume
				w.check(yaml.Unmarshal(data, &pv))
				w.PersistentVolume(pv.Name, pv.Spec.PersistentVolumeSource, pv.Spec.AccessModes...)
				w.migrate(config, pv.Name)
				replaced++
				w.remove(pv.Name) // other presets have examples of the same name
			})
			_ = w.Admin().StorageV1().CSIDrivers().Delete(t.Context(), driver, metav1.DeleteOptions{})
		})
	}
	t.Logf("%d volumes of %d presets", replaced, len(presets))
	if replaced < len(presets) {
		t.Errorf("only %d volumes were replaced", replaced)
	}
}

// example is the configuration and the objects of a preset's test data.
func (w *world) example(p bridgeconfig.Preset) (*bridgeconfig.Configuration, []byte) {
	w.t.Helper()
	archive, err := txtar.ParseFile("../../../internal/bridgeconfig/testdata/" + p.Name + ".txtar")
	w.check(err)
	var input []byte
	for _, f := range archive.Files {
		switch f.Name {
		case "input":
			input = f.Data
		case "fill":
			for line := range strings.Lines(string(f.Data)) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				p, err = p.Fill(name, value)
				w.check(err)
			}
		}
	}
	config, err := bridgeconfig.Loader{}.Decode([]byte(p.Text), mapping.Check)
	w.check(err)
	return config, input
}

// object calls f with each object of a kind.
func (w *world) object(input []byte, kind string, f func([]byte)) {
	w.t.Helper()
	for document := range strings.SplitSeq(string(input), "\n---\n") {
		var o metav1.TypeMeta
		w.check(yaml.Unmarshal([]byte(document), &o))
		if o.Kind == kind {
			f([]byte(document))
		}
	}
}

// migrate replaces a volume by its plan. Secrets that have to be made are.
func (w *world) migrate(c *bridgeconfig.Configuration, name string) {
	w.t.Helper()
	claim, err := w.Admin().CoreV1().PersistentVolumeClaims("default").Get(w.t.Context(), name, metav1.GetOptions{})
	w.check(err)
	plan := func() *migrate.PlannedVolume {
		p := &migrate.Planner{Client: w.cluster(controlplane.Admin), Config: c, Server: "test", Now: time.Now}
		plan, err := p.Plan(w.t.Context(), &migrate.Selection{Names: []string{name}})
		w.check(err)
		return plan.Volumes[0]
	}
	v := plan()
	for _, s := range v.Secrets {
		if s.Command != "" && !s.There {
			carryOut(w.t, w.Plane, s.Command)
		}
	}
	w.missing(c)
	v = plan()
	says(w.t, v, migrate.Live, "dry-run", migrate.OK, "stores it as it is")
	for _, s := range v.Secrets {
		if !s.There {
			w.t.Errorf("%+v", s)
		}
	}
	if v.Replacement != nil {
		w.replace(replacement(w.t, v), claim.UID)
	}
}

// missing makes the Secrets that a configuration names and the example does not
// have.
func (w *world) missing(c *bridgeconfig.Configuration) {
	w.t.Helper()
	for _, source := range c.Drivers[0].Secrets.All() {
		if ref := source.SecretRef; ref != nil {
			w.Namespace(ref.Namespace)
			_, _ = w.Admin().CoreV1().Secrets(ref.Namespace).Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}, metav1.CreateOptions{})
		}
	}
}

// remove removes a volume and its claim.
func (w *world) remove(name string) {
	w.t.Helper()
	none := []byte(`{"metadata":{"finalizers":null}}`)
	claims, volumes := w.Admin().CoreV1().PersistentVolumeClaims("default"), w.Admin().CoreV1().PersistentVolumes()
	w.check(claims.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	_, err := claims.Patch(w.t.Context(), name, "application/merge-patch+json", none, metav1.PatchOptions{})
	w.check(err)
	w.check(volumes.Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	_, err = volumes.Patch(w.t.Context(), name, "application/merge-patch+json", none, metav1.PatchOptions{})
	w.check(err)
}
