package migrate_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// strange is a PersistentVolume with all that this program does not know, and numbers at the
// ends of what it can keep.
const strange = `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv1","uid":"old","resourceVersion":"7","generation":9223372036854775807,` +
	`"annotations":{"example.com/note":"<stays> & is \"kept\"","kubectl.kubernetes.io/last-applied-configuration":"{}"},"finalizers":["kubernetes.io/pv-protection"],` +
	`"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u","new":true}]},` +
	`"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Delete","claimRef":{"kind":"PersistentVolumeClaim","namespace":"shop","name":"orders","uid":"claim","resourceVersion":"3","newField":[1,{"a":null}]},` +
	`"most":9223372036854775807,"least":-9223372036854775808,"half":0.5,"tiny":1e-300,"no":false,"nothing":null,"empty":{},"none":[],"list":[{"deep":{"er":12345678901234567}}],` +
	`"flexVolume":{"driver":"example.com/disk","options":{"volumeID":"vol-1","a<b":"c>d&e"},"new":{"from":"a later release"}}},"status":{"phase":"Bound"}}`

// TestRestored: what is put back is what was taken, but for what the API server alone says, and
// for the policy, which is given back when the claim is bound.
func TestRestored(t *testing.T) {
	got := migrate.Restored(&journal.Record{Flex: json.RawMessage(strange)})
	want := strange
	for _, alone := range []string{
		`"uid":"old","resourceVersion":"7","generation":9223372036854775807,`, `,"finalizers":["kubernetes.io/pv-protection"]`, `"resourceVersion":"3",`, `,"status":{"phase":"Bound"}`,
	} {
		if want = strings.Replace(want, alone, "", 1); strings.Contains(want, alone) || len(want) == len(strange) {
			t.Fatalf("%s is not in the volume", alone)
		}
	}
	want = strings.Replace(want, `"Delete"`, `"Retain"`, 1)
	if w, g := canonical(t, []byte(want)), canonical(t, got); w != g {
		t.Errorf("it was\n%s\nand is put back as\n%s", w, g)
	}
	if !bytes.Contains(got, []byte(`<stays> & is`)) {
		t.Error("people cannot read it")
	}
}

// canonical is JSON with its keys in order and each number as it was written.
func canonical(t *testing.T, data []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
