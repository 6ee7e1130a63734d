package migrate

import (
	"encoding/json"
	"fmt"

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
	a, b := w.sub("spec").copied(), pv.sub("spec")
	if pv.uid() == o.rec.CreatedUID {
		a = identity(a)
	}
	delete(a, "capacity") // an expansion
	delete(a, "persistentVolumeReclaimPolicy")
	return len(differences(map[string]any(a), map[string]any(b), "")) == 0
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
	object := tree(Stripped(old))
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
