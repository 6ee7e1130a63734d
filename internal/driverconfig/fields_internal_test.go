package driverconfig

import (
	"reflect"
	"strings"
	"testing"
)

// TestFieldsMatchTags holds the decoder's table and the struct's JSON tags, by
// which it is encoded, together.
func TestFieldsMatchTags(t *testing.T) {
	said := false
	set := fields(&decoder{}, &Configuration{}, &said)
	typ := reflect.TypeFor[Configuration]()
	known := 0
	for _, field := range reflect.VisibleFields(typ) {
		if field.Anonymous {
			continue // its fields are there as well
		}
		known++
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if set[name] == nil {
			t.Errorf("the decoder does not know the field %q", name)
		}
	}
	if len(set) != known {
		t.Errorf("the decoder knows %d fields, the struct has %d", len(set), known)
	}
}
