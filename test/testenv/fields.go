package testenv

import (
	"reflect"
	"strings"
	"time"
)

// JSONFields lists the fields of a JSON document by their paths, those of a
// struct after it, for tests that compare it with what is documented.
func JSONFields(t reflect.Type) []string { return jsonFields("", t) }

func jsonFields(prefix string, t reflect.Type) (all []string) {
	for f := range t.Fields() {
		if !f.IsExported() {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		path, of := prefix+name, f.Type
		if of.Kind() == reflect.Slice {
			path, of = path+"[]", of.Elem()
		}
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		all = append(all, path)
		if of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]() {
			all = append(all, jsonFields(path+".", of)...)
		}
	}
	return all
}
