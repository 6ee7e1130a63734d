// Package schema makes the JSON Schemas of the configuration of the bridge and of the
// chart's values. Both have the fields of the Go types that decode the configuration. Its
// test tells what is not up to date, and with -update (make docs) makes it.
package schema

import (
	_ "embed"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/distribution"
)

// Where the schemas are.
const (
	Configuration = "docs/reference/bridge-configuration.schema.json"
	Values        = "install/chart/flex2csi/values.schema.json"
)

//go:embed values.yaml
var values []byte

type object = map[string]any

// Files are the schemas, by their path below the repository's root, which has to be the
// working directory: the comments of the Go types become descriptions.
func Files() (map[string]string, error) {
	config, err := configuration()
	if err != nil {
		return nil, err
	}
	chart, err := chartValues(config)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for name, schema := range map[string]object{Configuration: config, Values: chart} {
		text, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			return nil, err
		}
		files[name] = string(text) + "\n"
	}
	return files, nil
}

// configuration is the schema of bridgeconfig.Configuration.
func configuration() (object, error) {
	r := jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, ExpandedStruct: true, Anonymous: true, Mapper: enumerated,
	}
	if err := r.AddGoComments("github.com/flex2csi/flex2csi", "internal/bridgeconfig"); err != nil {
		return nil, err
	}
	reflected := r.Reflect(&bridgeconfig.Configuration{})
	reflected.Title = "Configuration of the bridge (flex2csi)"
	for name, value := range map[string]string{"apiVersion": bridgeconfig.APIVersion, "kind": bridgeconfig.Kind} {
		property, _ := reflected.Properties.Get(name)
		property.Const = value
	}
	text, err := json.Marshal(reflected)
	if err != nil {
		return nil, err
	}
	// Draft 7 is what editors and Helm 3 know. It differs, of what is used here, in one word.
	draft7 := strings.NewReplacer(jsonschema.Version, "http://json-schema.org/draft-07/schema#", "$defs", "definitions").Replace(string(text))
	var schema object
	if err := json.Unmarshal([]byte(draft7), &schema); err != nil {
		return nil, err
	}
	describe(schema)
	for _, definition := range schema["definitions"].(object) {
		describe(definition.(object))
	}
	return schema, nil
}

// describe calls fields in their descriptions as they are called in the file, not in Go.
func describe(definition object) {
	for name, property := range definition["properties"].(object) {
		property := property.(object)
		text, ok := property["description"].(string)
		if !ok {
			continue
		}
		words := strings.Fields(text)
		if strings.EqualFold(words[0], name) {
			words[0] = name
		}
		property["description"] = strings.Join(words, " ")
	}
}

// enumerated has the values of types with few.
func enumerated(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[bridgeconfig.AttachMode]():
		return &jsonschema.Schema{Type: "string", Enum: []any{bridgeconfig.AttachAuto, bridgeconfig.AttachNone, bridgeconfig.AttachController, bridgeconfig.AttachVA}}
	case reflect.TypeFor[storagev1.FSGroupPolicy]():
		return &jsonschema.Schema{Type: "string", Enum: []any{storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy}}
	}
	return nil
}

// chartValues is values.yaml with what is known elsewhere: the fields of the configuration
// and the names of the distributions.
func chartValues(config object) (object, error) {
	var schema object
	if err := yaml.Unmarshal(values, &schema); err != nil {
		return nil, err
	}
	properties, definitions := schema["properties"].(object), schema["definitions"].(object)
	for name, definition := range config["definitions"].(object) {
		definitions[name] = definition
	}
	for name, property := range config["properties"].(object) {
		properties[name] = property
	}
	// The chart itself says what to do when there are none.
	drivers := properties["drivers"].(object)
	properties["drivers"] = object{"type": drivers["type"], "items": drivers["items"], "description": drivers["description"]}
	var names []string
	for _, d := range distribution.All() {
		names = append(names, d.Name)
	}
	slices.Sort(names)
	properties["distribution"] = object{"enum": names}
	return schema, nil
}
