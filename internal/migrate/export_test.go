package migrate

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// Render is what a plan makes of one volume, for tests without a cluster.
func Render(ctx context.Context, c *bridgeconfig.Configuration, raw []byte) (replacement []byte, v *PlannedVolume, err error) {
	drivers, err := (&Planner{Config: c}).drivers()
	if err != nil {
		return nil, nil, err
	}
	old, err := parseVolume(raw)
	if err != nil {
		return nil, nil, err
	}
	d, err := drivers.find(old)
	if err != nil {
		return nil, nil, err
	}
	r, err := d.render(ctx, old)
	if err != nil {
		return nil, nil, err
	}
	data, err := r.object.MarshalJSON()
	return data, &PlannedVolume{Checks: append(r.modesFound.all, r.secretsFound.all...), Changes: r.changes, Secrets: r.secrets, Original: original(old)}, err
}

// NotDone is what a plan notes of a volume that the CSI driver did not create.
func NotDone(v *csivol.Volume) string { return notDone(v) }

// YAMLOf writes JSON as YAML.
func YAMLOf(data []byte) ([]byte, error) { return yamltext.FromJSON(data) }

// ChangedBy are the fields of a volume that were stored in another way.
func ChangedBy(want, stored []byte) ([]string, error) {
	w, s, err := both(want, stored)
	if err != nil {
		return nil, err
	}
	return changedBy(w.Object, s.Object), nil
}

// Matches reports whether a volume is the one that was to be created; created:
// it has the UID of that.
func Matches(want, is []byte, created bool) (bool, error) {
	w, s, err := both(want, is)
	if err != nil {
		return false, err
	}
	return matches(sub(w.Object, "spec"), sub(s.Object, "spec"), created), nil
}

func both(a, b []byte) (x, y *Manifest, err error) {
	if x, err = parse(a); err != nil {
		return nil, nil, err
	}
	y, err = parse(b)
	return x, y, err
}

// CopyCommand makes a Secret of another one.
func CopyCommand(s *SecretCopy) string { return copyCommand(s) }

// Restored is the FlexVolume of a record as it is put back.
func Restored(rec *journal.Record) []byte { return restored(rec) }

// CheckTable are the checks as docs/reference/checks.md has them.
func CheckTable() string {
	var b strings.Builder
	b.WriteString("| check | what is looked at |\n|---|---|\n")
	for _, c := range checks() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.name, c.about)
	}
	return b.String()
}

// TrimPod leaves out of a pod what a feed does not keep.
func TrimPod(o *corev1.Pod) { trimPod(o) }
