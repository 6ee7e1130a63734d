package assess

import (
	"cmp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
)

// object is a manifest, or a part of one. What is missing is empty. It is not an API type: a
// manifest may have any other fields. An error names the key and the kind of a value, never
// the value, which may be a secret.
type object struct{ *yaml.Node }

func (o object) at(path ...string) object {
	for _, key := range path {
		var found object
		for name, value := range yamltext.Members(o.Node) {
			if name == key {
				found = object{value}
			}
		}
		o = found
	}
	return o
}

func (o object) kind() strict.Kind { return yamltext.KindOf(o.Node) }
func (o object) there() bool       { return o.kind() != strict.Null }

// text is that of a string, a number or a boolean.
func (o object) text(path ...string) string {
	if o = o.at(path...); o.there() {
		return o.Value
	}
	return ""
}

func (o object) truth(path ...string) (truth bool) {
	if o = o.at(path...); o.kind() == strict.Bool {
		_ = o.Decode(&truth) // it is one
	}
	return truth
}

func (o object) items(path ...string) (all []object) {
	for _, item := range yamltext.Items(o.at(path...).Node) {
		all = append(all, object{item})
	}
	return all
}

func (o object) texts(path ...string) (all []string) {
	for _, item := range o.items(path...) {
		all = append(all, item.text())
	}
	return all
}

// value is the object as packages of Kubernetes have it. Of a key that comes twice it has the
// last, as these do; package yaml refuses it.
func (o object) value() (value any) {
	switch o.kind() {
	case strict.Object:
		all := map[string]any{}
		for key, member := range yamltext.Members(o.Node) {
			all[key] = object{member}.value()
		}
		return all
	case strict.Array:
		all := []any{}
		for _, item := range o.items() {
			all = append(all, item.value())
		}
		return all
	case strict.Null:
		return nil
	}
	_ = o.Decode(&value) // yamltext has tried it
	return value
}

// objectOf is the way back.
func objectOf(value any) (o object) {
	o.Node = &yaml.Node{}
	_ = o.Encode(value) // which came from value
	return o
}

// slim is the object with what is needed of its metadata, and another spec.
func (o object) slim(spec object) object {
	key := func(name string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: name} }
	metadata := o.at("metadata").only("name", "namespace", "uid")
	return object{&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{key("metadata"), metadata.Node, key("spec"), spec.Node}}}
}

func (o object) only(keys ...string) object {
	all := &yaml.Node{Kind: yaml.MappingNode}
	for key, value := range yamltext.Members(o.Node) {
		if slices.Contains(keys, key) {
			all.Content = append(all.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
		}
	}
	return object{all}
}

// key is namespace/name.
func (o object) key() string { return o.namespace() + "/" + o.name() }

func (o object) name() string { return o.text("metadata", "name") }

func (o object) namespace() string { return cmp.Or(o.text("metadata", "namespace"), "default") }
