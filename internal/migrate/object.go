package migrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A tree is an object of JSON. Objects of the API are handled as such: what is
// copied from one to the next keeps fields that nobody here has heard of.
type tree map[string]any

// An Object is one of the API's, as it was read.
type Object struct {
	tree
	// Raw are the bytes of the API server.
	Raw json.RawMessage
}

// ParseObject reads an object.
func ParseObject(raw []byte) (*Object, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // so that it comes out as it went in
	var t tree
	if err := d.Decode(&t); err != nil {
		return nil, err
	}
	return &Object{tree: t, Raw: raw}, nil
}

// MarshalJSON gives the object as it is now.
func (o *Object) MarshalJSON() ([]byte, error) { return encode(o.tree) }

// encode is JSON in which a path or a mount option looks as people write it.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// at returns what is at a path, nil if nothing is.
func (t tree) at(path ...string) any {
	var value any = map[string]any(t)
	for _, key := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[key]
	}
	return value
}

func (t tree) has(path ...string) bool { return t.at(path...) != nil }

// text returns a string or number; empty if there is none.
func (t tree) text(path ...string) string {
	switch value := t.at(path...).(type) {
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return ""
}

// truth returns a boolean, or what it is by default.
func (t tree) truth(otherwise bool, path ...string) bool {
	if b, ok := t.at(path...).(bool); ok {
		return b
	}
	return otherwise
}

// sub returns an object in the object; nil if there is none.
func (t tree) sub(path ...string) tree {
	object, _ := t.at(path...).(map[string]any)
	return object
}

// list returns the objects in a list.
func (t tree) list(path ...string) (all []tree) {
	items, _ := t.at(path...).([]any)
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			all = append(all, object)
		}
	}
	return all
}

// texts returns the strings in a list.
func (t tree) texts(path ...string) (all []string) {
	items, _ := t.at(path...).([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// pairs returns a map of strings; never nil.
func (t tree) pairs(path ...string) map[string]string {
	all := map[string]string{}
	for key, value := range t.sub(path...) {
		if s, ok := value.(string); ok {
			all[key] = s
		}
	}
	return all
}

func (t tree) name() string      { return t.text("metadata", "name") }
func (t tree) namespace() string { return t.text("metadata", "namespace") }
func (t tree) uid() string       { return t.text("metadata", "uid") }
func (t tree) deleting() bool    { return t.has("metadata", "deletionTimestamp") }

// full is how people name the object.
func (t tree) full() string {
	if t.namespace() == "" {
		return t.name()
	}
	return t.namespace() + "/" + t.name()
}

// put sets a field, unless the value is empty.
func (t tree) put(key string, value any) {
	switch v := value.(type) {
	case string:
		if v == "" {
			return
		}
	case map[string]string:
		if len(v) == 0 {
			return
		}
		object := make(map[string]any, len(v))
		for k, s := range v {
			object[k] = s
		}
		value = object
	case []string:
		if len(v) == 0 {
			return
		}
		items := make([]any, len(v))
		for i, s := range v {
			items[i] = s
		}
		value = items
	case nil:
		return
	}
	t[key] = value
}

// copied is an object that shares nothing with this one.
func (t tree) copied() tree {
	object, _ := clone(map[string]any(t)).(map[string]any)
	return object
}

// clone copies what is below as well.
func clone(value any) any {
	switch v := value.(type) {
	case tree:
		return clone(map[string]any(v))
	case map[string]any:
		copied := make(map[string]any, len(v))
		for key, value := range v {
			copied[key] = clone(value)
		}
		return copied
	case []any:
		copied := slices.Clone(v)
		for i := range copied {
			copied[i] = clone(copied[i])
		}
		return copied
	}
	return value
}

// differences are the paths whose values are not the same in both, of which one
// may have more than was asked for.
func differences(want, got any, path string) (all []string) {
	w, isObject := want.(map[string]any)
	g, alike := got.(map[string]any)
	if !isObject || !alike {
		if shown(want) != shown(got) {
			all = append(all, fmt.Sprintf("%s is %s, and %s was asked for", strings.TrimPrefix(path, "."), shown(got), shown(want)))
		}
		return all
	}
	for _, key := range slices.Sorted(maps.Keys(w)) {
		all = append(all, differences(w[key], g[key], path+"."+key)...)
	}
	return all
}

// additions are the paths of which one has values that nobody has asked for. What
// is another value on both sides is among the [differences].
func additions(want, got any, path string) (all []string) {
	if want == nil && got != nil {
		return []string{fmt.Sprintf("%s is %s, which was not asked for", strings.TrimPrefix(path, "."), shown(got))}
	}
	w, isObject := want.(map[string]any)
	g, alike := got.(map[string]any)
	if !isObject || !alike {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(g)) {
		all = append(all, additions(w[key], g[key], path+"."+key)...)
	}
	return all
}

// shown is a value for people, and to compare.
func shown(value any) string {
	if value == nil {
		return "not there"
	}
	text, err := encode(value)
	if err != nil {
		return "unreadable"
	}
	return string(text)
}
