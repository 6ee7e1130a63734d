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
	if len(set) != typ.NumField() {
		t.Errorf("the decoder knows %d fields, the struct has %d", len(set), typ.NumField())
	}
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if set[name] == nil {
			t.Errorf("the decoder does not know the field %q", name)
		}
	}
}
