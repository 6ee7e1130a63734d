package migrate

import (
	"encoding/json"
	"fmt"
	"slices"

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
func (o *one) matches(pv *Object, want json.RawMessage) bool {
	w, err := ParseObject(want)
	if err != nil {
		return false
	}
	return matches(w.sub("spec").copied(), pv.sub("spec"), pv.uid() == o.rec.CreatedUID)
}

// matches compares two specs, both ways. Of the volume that was created then only
// the identity counts: what was added to that a person was told (asAsked), and has
// gone on.
func matches(want, is tree, created bool) bool {
	if created {
		return len(differences(map[string]any(identity(want)), map[string]any(is), "")) == 0
	}
	delete(want, "capacity") // an expansion
	delete(want, "persistentVolumeReclaimPolicy")
	if len(differences(map[string]any(want), map[string]any(is), "")) > 0 {
		return false
	}
	return !slices.ContainsFunc(mounting(), func(field string) bool {
		return len(additions(want.at(field), is.at(field), field)) > 0
	})
}

// identity is what makes a volume this volume, and this claim's.
func identity(spec tree) tree {
	is := tree{}
	for _, source := range []string{"flexVolume", "csi"} {
		if spec.has(source) {
			is[source] = spec.at(source)
		}
	}
	if uid := spec.text("claimRef", "uid"); uid != "" {
		is["claimRef"] = map[string]any{"uid": uid}
	}
	return is
}

// restored is the FlexVolume as it is put back: what it was, but that it keeps
// what is stored until the claim is bound to it (finishFlex).
func restored(rec *journal.Record) json.RawMessage {
	old, err := ParseObject(rec.Flex)
	if err != nil {
		return nil
	}
	object := tree(stripped(old))
	if text, ok := old.pairs("metadata", "annotations")[lastApplied]; ok {
		object.sub("metadata", "annotations")[lastApplied] = text
	}
	object.sub("spec")["persistentVolumeReclaimPolicy"] = policyRetain
	text, err := encode(object)
	if err != nil {
		return nil
	}
	return text
}

// policyOf is the reclaim policy that the FlexVolume had.
func policyOf(rec *journal.Record) (string, error) {
	old, err := ParseObject(rec.Flex)
	if err != nil {
		return "", fmt.Errorf("read the FlexVolume of the journal: %w", err)
	}
	return old.text("spec", "persistentVolumeReclaimPolicy"), nil
}
