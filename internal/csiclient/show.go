package csiclient

import (
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/flex2csi/flex2csi/internal/guard"
)

// A Message is a request of CSI, for those who do not import protobuf.
type Message = proto.Message

// Show turns a request into YAML for people: the fields that are set, by the
// names and in the order of the specification. The values of secrets are
// masked, and every other text goes through redact.
//
// protosanitizer of csi-lib-utils masks the fields that the specification
// marks (csi_secret). Passwords come in mount flags as well, and tokens in the
// volume context.
func Show(m Message, redact func(string) string) *yaml.Node {
	s := shower{redact}
	return s.message(m.ProtoReflect())
}

type shower struct{ redact func(string) string }

func (s shower) message(m protoreflect.Message) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); m.Has(f) {
			out.Content = append(out.Content, text(string(f.Name())), s.field(f, m.Get(f)))
		}
	}
	return out
}

func (s shower) field(f protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	secret := isSecret(f)
	switch {
	case f.IsMap():
		return s.textMap(v.Map(), secret)
	case secret:
		return text(guard.Mask)
	case f.IsList():
		return s.list(f, v.List())
	}
	return s.value(f, v)
}

// textMap shows a map of strings, which all of CSI's are.
func (s shower) textMap(m protoreflect.Map, secret bool) *yaml.Node {
	values := map[string]string{}
	for k, v := range m.Range {
		value := s.redact(v.String())
		if secret || guard.SensitiveKey(k.String()) {
			value = guard.Mask
		}
		values[k.String()] = value
	}
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		out.Content = append(out.Content, text(k), text(values[k]))
	}
	return out
}

func (s shower) list(f protoreflect.FieldDescriptor, l protoreflect.List) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for i := range l.Len() {
		v := l.Get(i)
		if f.Name() == "mount_flags" {
			v = protoreflect.ValueOfString(guard.MaskOptions([]string{v.String()})[0])
		}
		out.Content = append(out.Content, s.value(f, v))
	}
	return out
}

func (s shower) value(f protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return s.message(v.Message())
	case protoreflect.StringKind:
		return text(s.redact(v.String()))
	case protoreflect.BoolKind:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case protoreflect.EnumKind:
		if name := f.Enum().Values().ByNumber(v.Enum()); name != nil {
			return text(string(name.Name()))
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(int(v.Enum()))}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()} // a number
}

func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}
