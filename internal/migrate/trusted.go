package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// A user who may write ConfigMaps in the namespace of the journal may write a record,
// and what a record has is created. So a record that was read counts only as far as
// it is about the volume: its two PersistentVolumes have the name and the claim of
// the record, one is the FlexVolume of the driver and the other the CSI volume of the
// handle, and what is to be created is one of these two.

// checkRecord is an error unless a record may be gone on with.
func checkRecord(rec *journal.Record) error {
	flex, err := parse(restored(rec))
	if err != nil {
		return untrustedError(rec, errors.New("its FlexVolume cannot be read"))
	}
	csi, err := parse(rec.CSI)
	if err != nil {
		return untrustedError(rec, errors.New("its CSI volume cannot be read"))
	}
	due := csi
	if rec.Direction == journal.ToFlexVolume {
		due = flex
	}
	for _, err := range []error{
		checkManifest(rec, flex.Object, "flexVolume", map[string]string{"driver": rec.FlexDriver}),
		checkManifest(rec, csi.Object, "csi", map[string]string{"driver": rec.CSIDriver, "volumeHandle": rec.VolumeHandle}),
		checkDue(rec.To, due),
	} {
		if err != nil {
			return untrustedError(rec, err)
		}
	}
	return nil
}

func untrustedError(rec *journal.Record, err error) error {
	return fmt.Errorf("read the journal of PersistentVolume %s: %w; the record was changed by another program or by hand. Compare its ConfigMap %s with its copy in the directory of the journal (kubectl diff -f), and with backup/ there; if the copy is right, kubectl replace -f that",
		rec.Volume, err, journal.ConfigMapName(rec.Volume))
}

// checkManifest is an error unless an object is the record's PersistentVolume, with a
// source of which these fields are known.
func checkManifest(rec *journal.Record, object map[string]any, source string, known map[string]string) error {
	for field, want := range map[string]string{"apiVersion": "v1", "kind": "PersistentVolume"} {
		if is := text(object, field); is != want {
			return differs(field, is, want)
		}
	}
	if is := text(object, "metadata", "name"); is != rec.Volume {
		return differs("metadata.name", is, rec.Volume)
	}
	for _, field := range slices.Sorted(maps.Keys(sub(object, "metadata"))) {
		if !slices.Contains([]string{"name", "generateName", "labels", "annotations", "ownerReferences"}, field) {
			return fmt.Errorf("it has metadata.%s", field)
		}
	}
	spec := sub(object, "spec")
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		// Each source is an object. A field of a later release that is none is carried
		// along.
		_, isObject := spec[field].(map[string]any)
		if isObject && !slices.Contains([]string{"capacity", "claimRef", "nodeAffinity", source}, field) {
			return fmt.Errorf("it has spec.%s", field)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(known)) {
		if is := text(spec, source, field); is == "" || is != known[field] {
			return differs("spec."+source+"."+field, is, known[field])
		}
	}
	if policy := text(spec, "persistentVolumeReclaimPolicy"); policy != policyRetain {
		return differs("spec.persistentVolumeReclaimPolicy", policy, policyRetain)
	}
	return checkClaimRef(rec, spec)
}

func checkClaimRef(rec *journal.Record, spec map[string]any) error {
	var claim string
	if ref := sub(spec, "claimRef"); ref != nil {
		claim = text(ref, "namespace") + "/" + text(ref, "name")
	}
	if uid := text(spec, "claimRef", "uid"); claim != rec.Claim || uid != rec.ClaimUID {
		return differs("spec.claimRef", claim+" "+uid, rec.Claim+" "+rec.ClaimUID)
	}
	return nil
}

// checkRendered is an error unless the replacement of the journal is what the configuration makes
// of its FlexVolume: attributes, Secrets and mount options of a record count for no more than
// its volume handle. Where the FlexVolume is still there, accept compares with that.
func (m *migration) checkRendered(ctx context.Context) error {
	no := func(format string, args ...any) error {
		return terminal("continue with PersistentVolume %s: %s; resume with the --config and --secret of apply, or, if another program has changed the record, compare its ConfigMap %s with the directory of the journal",
			m.rec.Volume, fmt.Sprintf(format, args...), journal.ConfigMapName(m.rec.Volume))
	}
	object, err := m.render(ctx, m.rec.Flex)
	if err != nil {
		return no("its replacement cannot be compared: %v", err)
	}
	if changed := changedSince(m.rec.CSI, object); changed != "" {
		return no("the journal has another replacement than the configuration makes of its FlexVolume: %s", changed)
	}
	return nil
}

// render returns what the configuration makes of a FlexVolume of the journal.
func (m *migration) render(ctx context.Context, flex []byte) (*Manifest, error) {
	old, err := parseVolume(flex)
	if err != nil {
		return nil, err
	}
	all, err := m.r.Planner.drivers()
	if err != nil {
		return nil, err
	}
	d, err := all.find(old)
	if d == nil && err == nil {
		err = fmt.Errorf("%w %s", errUnmapped, m.rec.FlexDriver)
	}
	if err != nil {
		return nil, err
	}
	r, err := d.render(ctx, old)
	if err != nil {
		return nil, err
	}
	return r.object, nil
}

// takeMetadata gives both volumes of the journal the labels and annotations that the FlexVolume has
// by now: that another client has changed them is no reason to stop. Those that the record has do
// not count.
func (m *migration) takeMetadata(ctx context.Context, v *PlannedVolume) error {
	old, err := parse(m.rec.Flex)
	if err != nil {
		return err
	}
	metadata, now := sub(old.Object, "metadata"), sub(v.Original.object, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		if delete(metadata, field); now[field] != nil {
			metadata[field] = runtime.DeepCopyJSONValue(now[field])
		}
	}
	flex, err := encode(old.Object)
	if err != nil {
		return err
	}
	object, err := m.render(ctx, flex)
	if err != nil {
		return err
	}
	csi, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	m.rec.Flex, m.rec.CSI, m.rec.To = flex, csi, csi
	return nil
}

// checkDue is an error unless what is to be created is one of the two volumes; it may
// have been expanded.
func checkDue(to json.RawMessage, due *Manifest) error {
	object, err := parse(to)
	if err != nil {
		return errors.New("what is to be created cannot be read")
	}
	want, is := due.DeepCopy().Object, object.Object
	delete(sub(want, "spec"), "capacity")
	delete(sub(is, "spec"), "capacity")
	changed := append(differences(want, is, ""), additions(want, is, "")...)
	if len(changed) > 0 {
		return fmt.Errorf("what is to be created is not its volume: %s", strings.Join(changed, "; "))
	}
	return nil
}

func differs(field, is, want string) error {
	return fmt.Errorf("%s is %q, not %q", field, is, want)
}

// checkOriginal is an error unless the FlexVolume of the journal is the one that the
// CSI volume says it was, and the CSI volume is the one of the journal. The journal
// can be written by more people than PersistentVolumes.
func (m *migration) checkOriginal(pv *volume) error {
	if driver, handle := pv.csi(); driver != m.rec.CSIDriver || handle != m.rec.VolumeHandle {
		return untrustedError(m.rec, fmt.Errorf("the PersistentVolume is %s/%s, not %s/%s", driver, handle, m.rec.CSIDriver, m.rec.VolumeHandle))
	}
	annotation, ok := pv.Annotations[OriginalAnnotation]
	if !ok {
		return nil // a user who may write PersistentVolumes has taken it away
	}
	original, err := parse([]byte(annotation))
	if err != nil {
		return fmt.Errorf("read annotation %s of PersistentVolume %s: %w", OriginalAnnotation, m.rec.Volume, err)
	}
	to, err := parse(m.rec.To)
	if err != nil {
		return err
	}
	const source = "spec.flexVolume"
	was, is := sub(original.Object, "spec", "flexVolume"), sub(to.Object, "spec", "flexVolume")
	if changed := append(differences(was, is, source), additions(was, is, source)...); len(changed) > 0 {
		return untrustedError(m.rec, fmt.Errorf("by its annotation %s the PersistentVolume was another FlexVolume: %s", OriginalAnnotation, strings.Join(changed, "; ")))
	}
	return nil
}
