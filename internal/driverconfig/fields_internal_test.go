package driverconfig

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestFieldsMatchTags holds the decoder's table and the structs' JSON tags, by which they
// are encoded, together.
func TestFieldsMatchTags(t *testing.T) {
	compareFields(t, "", (&Configuration{}).fields(), reflect.TypeFor[Configuration]())
}

func compareFields(t *testing.T, path string, fields []field, typ reflect.Type) {
	var known []string
	for _, structField := range reflect.VisibleFields(typ) {
		if structField.Anonymous {
			continue // its fields are there as well
		}
		name, _, _ := strings.Cut(structField.Tag.Get("json"), ",")
		known = append(known, name)
		i := slices.IndexFunc(fields, func(f field) bool { return f.key == name })
		if i < 0 {
			t.Errorf("the decoder does not know the field %s%s", path, name)
		} else if nested, ok := fields[i].to.([]field); ok {
			compareFields(t, path+name+".", nested, structField.Type)
		}
	}
	if len(fields) != len(known) {
		t.Errorf("the decoder knows %d fields of %q, the struct has %d", len(fields), path, len(known))
	}
}
