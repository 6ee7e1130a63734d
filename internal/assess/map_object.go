package assess

import (
	"cmp"
	"encoding/json"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/strict/strictyaml"
)

// object is a manifest, or a part of one. What is missing is empty. It is not an API type: a
// manifest may have any other fields. An error names the key and the kind of a value, never
// the value, which may be a secret.
type object struct{ strict.Node }

func (o object) at(path ...string) object {
	for _, key := range path {
		var found strict.Node
		for _, m := range o.Members {
			if m.Key == key {
				found = m.Value
			}
		}
		o = object{found}
	}
	return o
}

func (o object) text(path ...string) string { return o.at(path...).Text }
func (o object) truth(path ...string) bool  { return o.at(path...).Truth }
func (o object) there() bool                { return o.Kind != "" && o.Kind != strict.Null }

func (o object) texts(path ...string) (all []string) {
	for _, item := range o.at(path...).Items {
		all = append(all, item.Text)
	}
	return all
}

// value is the object as packages of Kubernetes have it.
func (o object) value() any {
	switch o.Kind {
	case strict.Object:
		all := make(map[string]any, len(o.Members))
		for _, m := range o.Members {
			all[m.Key] = object{m.Value}.value()
		}
		return all
	case strict.Array:
		all := make([]any, len(o.Items))
		for i, item := range o.Items {
			all[i] = object{item}.value()
		}
		return all
	case strict.Bool:
		return o.Truth
	case strict.Number:
		return json.Number(o.Text)
	case strict.String:
		return o.Text
	}
	return nil
}

// objectOf is the way back.
func objectOf(value any) object {
	text, err := json.Marshal(value)
	nodes, parseErr := strictyaml.ParseAll(text)
	if err != nil || parseErr != nil || len(nodes) != 1 {
		return object{}
	}
	return object{nodes[0]}
}

// slim is the object with what is needed of its metadata, and another spec.
func (o object) slim(spec strict.Node) object {
	o.Members = []strict.Member{{Key: "metadata", Value: o.at("metadata").Only("name", "namespace", "uid")}, {Key: "spec", Value: spec}}
	return o
}

// key is namespace/name.
func (o object) key() string { return o.namespace() + "/" + o.name() }

func (o object) name() string { return o.text("metadata", "name") }

func (o object) namespace() string { return cmp.Or(o.text("metadata", "namespace"), "default") }
