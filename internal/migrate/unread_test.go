package migrate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestUnread: one record that could not be read, or a stray file in the directory, kept resume
// and rollback of all volumes from what they are for, and one with an unknown stage ended the
// process with a panic, with other volumes in the window.
func TestUnread(t *testing.T) {
	other := func(change func(*journal.Record)) func(*journey) {
		return func(j *journey) {
			rec := deleted()
			rec.Volume = "other"
			for _, o := range []*json.RawMessage{&rec.Flex, &rec.CSI, &rec.To} {
				*o = json.RawMessage(strings.ReplaceAll(string(*o), `"pv1"`, `"other"`))
			}
			change(rec)
			if err := j.runner().Journal.Save(j.t.Context(), rec); err != nil {
				j.t.Fatal(err)
			}
		}
	}
	file := func(name, text string) func(*journey) {
		return func(j *journey) {
			if err := os.WriteFile(filepath.Join(j.dir, name), []byte(text), 0o600); err != nil {
				j.t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		spoil func(*journey)
		says  string
	}{
		"a stray file": {func(j *journey) {
			text, err := os.ReadFile(filepath.Join(j.dir, "pv1.json"))
			if err != nil {
				j.t.Fatal(err)
			}
			file("pv1.before.json", string(text))(j)
		}, "pv1.before.json"},
		"another program's file": {file("plan.json", `{"apiVersion":"v1","kind":"List"}`), "plan.json"},
		"an empty file":          {file("other.json", ""), "other.json"},
		"a ConfigMap without a record": {func(j *journey) {
			other(func(*journal.Record) {})(j)
			modify(j.api, objects.ConfigMaps(), migrate.Namespace, journal.ConfigMapName("other"), func(m *corev1.ConfigMap) { m.Data = nil })
		}, journal.ConfigMapName("other")},
		"an unknown stage":     {other(func(r *journal.Record) { r.Stage = "Halfway" }), `stage is "Halfway"`},
		"an unknown mode":      {other(func(r *journal.Record) { r.Mode = "Magic" }), `mode is "Magic"`},
		"an unknown direction": {other(func(r *journal.Record) { r.Direction = "" }), `direction is ""`},
	} {
		for _, command := range []string{"resume", "rollback"} {
			t.Run(strings.ReplaceAll(name+"/"+command, " ", "-"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJourney(t, true, journal.Live)
					j.stopBefore("create persistentvolumes")
					test.spoil(j)
					came, err := j.do(t.Context(), command)
					if unread, whole := journal.Unread(err); whole != nil || unread == nil || !strings.Contains(unread.Error(), test.says) {
						t.Errorf("%v", err)
					}
					if came.Outcome != migrate.Done {
						t.Errorf("%+v", came)
					}
					if command == "resume" {
						j.isCSI()
					} else {
						j.isFlex()
					}
				})
			})
		}
	}
}

// TestPanic: what goes wrong within this program with one volume is a result of that volume.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Live)
		j.api.before = func(_ int, request string) error {
			if strings.HasSuffix(request, "persistentvolumes (dry run)") && j.api.requested("patch persistentvolumes") {
				panic("a bug")
			}
			return nil
		}
		came, err := j.do(t.Context(), "apply")
		if err != nil || came.Outcome != migrate.Unfinished || !strings.Contains(came.Why, "internal error of flex2csi: a bug") {
			t.Errorf("%+v, %v", came, err)
		}
		j.heal()
		j.wants(t.Context(), "resume")
	})
}

// TestForgedReplacement: resume believed the journal in all but driver, volume handle and claim,
// and created attributes, Secrets and mount options that nothing has asked for.
func TestForgedReplacement(t *testing.T) {
	const handle = `"volumeHandle":"vol-1"`
	for name, forge := range map[string]func(string) string{
		"an attribute": func(s string) string { return strings.Replace(s, handle, handle+`,"volumeAttributes":{"root":"/"}`, 1) },
		"a stage secret": func(s string) string {
			return strings.Replace(s, handle, handle+`,"nodeStageSecretRef":{"namespace":"kube-system","name":"x"}`, 1)
		},
		"a publish secret": func(s string) string {
			return strings.Replace(s, handle, handle+`,"nodePublishSecretRef":{"namespace":"kube-system","name":"x"}`, 1)
		},
		"mount options":  func(s string) string { return strings.Replace(s, `"spec":{`, `"spec":{"mountOptions":["suid"],`, 1) },
		"an access mode": func(s string) string { return strings.Replace(s, `["ReadWriteOnce"]`, `["ReadWriteMany"]`, 1) },
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Live)
				j.stopBefore("create persistentvolumes")
				store := j.runner().Journal
				rec, err := store.Load(t.Context(), "pv1")
				if err != nil {
					t.Fatal(err)
				}
				before := string(rec.CSI)
				rec.CSI = json.RawMessage(forge(before))
				if rec.To = rec.CSI; string(rec.CSI) == before {
					t.Fatalf("nothing is forged in %s", before)
				}
				if err := store.Save(t.Context(), rec); err != nil {
					t.Fatal(err)
				}
				came, err := j.do(t.Context(), "resume")
				if err != nil || came.Outcome == migrate.Done || !strings.Contains(came.Why, "than the configuration makes of its FlexVolume") {
					t.Errorf("%+v, %v", came, err)
				}
				if pv := j.volume(); pv != nil {
					t.Errorf("it has created %+v", pv.Spec)
				}
				j.wants(t.Context(), "rollback")
				j.isFlex()
			})
		})
	}
}
