package yamltext

import (
	"cmp"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// KindOf returns the kind of a value: null for none, and empty if its tag is not supported.
func KindOf(n *yaml.Node) strict.Kind {
	if n == nil {
		return strict.Null
	}
	switch n.ShortTag() {
	case "!!seq":
		return strict.Array
	case "!!map":
		return strict.Object
	case "!!null":
		return strict.Null
	case "!!bool":
		return strict.Bool
	case "!!int", "!!float":
		return strict.Number
	case "!!str", "!!timestamp":
		return strict.String
	}
	return ""
}

// Members yields the keys and values of an object.
func Members(n *yaml.Node) iter.Seq2[string, *yaml.Node] {
	return func(yield func(string, *yaml.Node) bool) {
		if KindOf(n) != strict.Object {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// Items returns the items of an array.
func Items(n *yaml.Node) []*yaml.Node {
	if KindOf(n) != strict.Array {
		return nil
	}
	return n.Content
}

// A Decoder puts values into structs, slices, maps, strings and booleans, and collects the
// faults. Fields have tags as for package yaml; a tag want says in words what a string is.
// A type can have defaults, by a method SetDefaults, and say what to do about fields of
// earlier versions, by a method RemovedFields.
//
// Package yaml itself, with KnownFields, makes strings of numbers, ignores null, skips an
// object in which a key comes twice, and names no paths.
type Decoder struct {
	strict.Report
	lines map[string]int // by path
}

// Decode puts a value into the variable that to points to.
func (d *Decoder) Decode(n *yaml.Node, to any) {
	d.lines = map[string]int{}
	d.value("", n, reflect.ValueOf(to).Elem(), "")
}

// Err returns nil, or a [*strict.InvalidError] with the faults, from the first line to the
// last. A fault without a line gets that of its path.
func (d *Decoder) Err() error {
	for i, f := range d.Faults {
		for path := f.Path; d.Faults[i].Line == 0 && path != ""; path = parent(path) {
			d.Faults[i].Line = d.lines[path]
		}
	}
	slices.SortStableFunc(d.Faults, func(a, b strict.Fault) int { return cmp.Compare(a.Line, b.Line) })
	return d.Report.Err()
}

// parent cuts the last element off a path. Quoted keys may have dots in them,
// which makes a path that nothing has, and the next one is tried.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

func (d *Decoder) value(path string, n *yaml.Node, v reflect.Value, want string) {
	d.lines[path] = n.Line
	if v, ok := reflect.TypeAssert[interface{ SetDefaults() }](v.Addr()); ok {
		v.SetDefaults()
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, n, v.Elem(), want)
	case reflect.Struct:
		if d.is(strict.Object, path, n) {
			d.object(path, n, v)
		}
	case reflect.Map:
		if d.is(strict.Object, path, n) {
			d.texts(path, n, v)
		}
	case reflect.Slice:
		if d.is(strict.Array, path, n) {
			d.array(path, n, v)
		}
	case reflect.Bool:
		if d.is(strict.Bool, path, n) {
			_ = n.Decode(v.Addr().Interface()) // it is one
		}
	case reflect.String:
		switch {
		case want != "" && KindOf(n) != strict.String:
			d.Fault(path, "want %s but got %s: put single quotes around it", want, KindOf(n).Describe(n.Value))
		case d.is(strict.String, path, n):
			v.SetString(n.Value)
		}
	}
}

func (d *Decoder) is(want strict.Kind, path string, n *yaml.Node) bool {
	return d.Is(path, want, KindOf(n), n.Value)
}

func (d *Decoder) object(path string, n *yaml.Node, v reflect.Value) {
	fields := fieldsOf(v.Type())
	var removed map[string]string
	if v, ok := reflect.TypeAssert[interface{ RemovedFields() map[string]string }](v.Addr()); ok {
		removed = v.RemovedFields()
	}
	d.members(path, n, func(at, key string, value *yaml.Node) {
		field, known := fields[key]
		advice := removed[key]
		switch {
		case known:
			d.value(at, value, v.FieldByIndex(field.Index), field.Tag.Get("want"))
		case advice != "":
			d.Fault(at, "was removed: %s", advice)
		default:
			d.Unknown(at, slices.Collect(maps.Keys(fields)))
		}
	})
}

// members calls take for the first member of each key.
func (d *Decoder) members(path string, n *yaml.Node, take func(at, key string, value *yaml.Node)) {
	seen := map[string]bool{}
	for key, value := range Members(n) {
		at := strict.Join(path, key)
		d.lines[at] = value.Line
		if seen[key] {
			d.Fault(at, "twice in the file")
			continue
		}
		seen[key] = true
		take(at, key, value)
	}
}

// fieldsOf returns the fields of a struct by their keys.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	fields := make(map[string]reflect.StructField, t.NumField())
	for field := range t.Fields() {
		if key, _, _ := strings.Cut(field.Tag.Get("yaml"), ","); key != "-" {
			fields[key] = field
		}
	}
	return fields
}

// texts takes an object with any keys. Its values are strings.
func (d *Decoder) texts(path string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	d.members(path, n, func(at, key string, value *yaml.Node) {
		text := reflect.New(v.Type().Elem()).Elem()
		d.value(at, value, text, "")
		v.SetMapIndex(reflect.ValueOf(key), text)
	})
}

func (d *Decoder) array(path string, n *yaml.Node, v reflect.Value) {
	for i, item := range Items(n) {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.value(strict.Index(path, i), item, v.Index(i), "")
	}
}
