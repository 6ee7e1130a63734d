package bridgeconfig

import (
	"reflect"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// TestFieldsMatchTags holds the decoder's tables and the structs' YAML tags, by
// which they are encoded, together.
func TestFieldsMatchTags(t *testing.T) {
	d := &strict.Decoder{}
	tables := map[reflect.Type]strict.Fields{
		reflect.TypeFor[Configuration](): Loader{}.fields(d, &Configuration{}),
		reflect.TypeFor[Driver]():        driverFields(d, &Driver{}),
		reflect.TypeFor[Secrets]():       secretFields(d, &Secrets{}),
		reflect.TypeFor[Timeouts]():      timeoutFields(d, &Timeouts{}),
	}
	for typ, table := range tables {
		if len(table) != typ.NumField() {
			t.Errorf("%v: the decoder knows %d fields, the struct has %d", typ, len(table), typ.NumField())
		}
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if table[name] == nil {
				t.Errorf("%v: the decoder does not know the field %q", typ, name)
			}
		}
	}
}
