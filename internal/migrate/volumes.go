package migrate

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// matches reports whether a volume is what was to be created: the one that was
// created then, or one that says the same. What people and controllers may change
// of a volume afterwards is not compared.
func (o *one) matches(pv *volume, want json.RawMessage) bool {
	w, err := parse(want)
	if err != nil {
		return false
	}
	return matches(sub(w.Object, "spec"), sub(pv.object, "spec"), string(pv.UID) == o.rec.CreatedUID)
}

// matches compares two specs, both ways. Of the volume that was created then only
// the identity counts: what was added to that a person was told (asAsked), and has
// gone on.
func matches(want, is map[string]any, created bool) bool {
	if created {
		return len(differences(identity(want), is, "")) == 0
	}
	want = maps.Clone(want)
	delete(want, "capacity") // an expansion
	delete(want, "persistentVolumeReclaimPolicy")
	return len(differences(want, is, ""))+len(mountedOtherwise(want, is, "")) == 0
}

// identity is what makes a volume this volume, and this claim's.
func identity(spec map[string]any) map[string]any {
	is := map[string]any{}
	for _, source := range []string{"flexVolume", "csi"} {
		if spec[source] != nil {
			is[source] = spec[source]
		}
	}
	if uid := text(spec, "claimRef", "uid"); uid != "" {
		is["claimRef"] = map[string]any{"uid": uid}
	}
	return is
}

// restored is the FlexVolume as it is put back: what it was, but that it keeps
// what is stored until the claim is bound to it (finalPolicy).
func restored(rec *journal.Record) json.RawMessage {
	old, err := parse(rec.Flex)
	if err != nil {
		return nil
	}
	object := stripped(old.Object)
	if applied, ok := old.GetAnnotations()[lastApplied]; ok {
		sub(object, "metadata", "annotations")[lastApplied] = applied
	}
	retained(object)
	text, err := encode(object)
	if err != nil {
		return nil
	}
	return text
}

// retained gives an object the policy Retain.
func retained(object map[string]any) {
	if spec := sub(object, "spec"); spec != nil {
		spec["persistentVolumeReclaimPolicy"] = policyRetain
	}
}

// policyOf is the reclaim policy that the FlexVolume had.
func policyOf(rec *journal.Record) (string, error) {
	old, err := parse(rec.Flex)
	if err != nil {
		return "", fmt.Errorf("read the FlexVolume of the journal: %w", err)
	}
	return text(old.Object, "spec", "persistentVolumeReclaimPolicy"), nil
}
