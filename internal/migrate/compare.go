package migrate

import (
	"encoding/json"
	"maps"
)

// matches reports whether a volume is what was to be created: the one that was
// created then, or one that says the same. What people and controllers may change
// of a volume afterwards is not compared.
func (m *migration) matches(pv *volume, want json.RawMessage) bool {
	w, err := parse(want)
	if err != nil {
		return false
	}
	return matches(sub(w.Object, "spec"), sub(pv.object, "spec"), string(pv.UID) == m.rec.CreatedUID)
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
