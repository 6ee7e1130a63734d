package bridgeconfig

import (
	"reflect"
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
	}
	for typ, table := range tables {
		if len(table) != len(tags(typ)) {
			t.Errorf("%v: the decoder knows %d fields, the struct has %d", typ, len(table), len(tags(typ)))
		}
		for _, name := range tags(typ) {
			if table[name] == nil {
				t.Errorf("%v: the decoder does not know the field %q", typ, name)
			}
		}
	}
}
